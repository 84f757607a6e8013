//! The address of NATS and the credentials. Names and passwords are taken out of the address at once, because addresses are logged.

use async_nats::{ConnectOptions, ServerAddr};
use percent_encoding::percent_decode_str;

/// One or more servers of a cluster, and the credentials.
pub(super) struct Address {
    pub servers: Vec<ServerAddr>,
    login: Option<Login>,
}

#[derive(Debug, PartialEq, Eq)]
enum Login {
    Token(String),
    User { name: String, password: String },
}

impl Address {
    /// Reads `nats://host:port`, with `token@` or `user:password@` before the host, or several such addresses with commas between them. The
    /// error has no part of the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut address = Address { servers: Vec::new(), login: None };
        for part in text.split(',') {
            let server: ServerAddr = part.trim().parse().map_err(|error: std::io::Error| error.to_string())?;
            if !matches!(server.scheme(), "nats" | "tls") {
                return Err("it begins with nats:// or tls://".to_owned());
            }
            let login = login(&server)?;
            let mut url = server.into_inner();
            if url.host_str().is_none_or(str::is_empty) || url.set_username("").is_err() || url.set_password(None).is_err() {
                return Err("it has no host".to_owned());
            }
            address.servers.push(ServerAddr::from_url(url).map_err(|error| error.to_string())?);
            address.login = address.login.or(login);
        }
        Ok(address)
    }

    /// Adds the credentials.
    pub fn authorize(&self, options: ConnectOptions) -> ConnectOptions {
        match &self.login {
            None => options,
            Some(Login::Token(token)) => options.token(token.clone()),
            Some(Login::User { name, password }) => options.user_and_password(name.clone(), password.clone()),
        }
    }
}

fn login(server: &ServerAddr) -> Result<Option<Login>, String> {
    let decoded = |text: &str| {
        let text = percent_decode_str(text).decode_utf8().map_err(|_| "its user or password is not UTF-8".to_owned())?;
        Ok::<_, String>(text.into_owned())
    };
    Ok(match (server.username(), server.password()) {
        (None, None) => None,
        (Some(token), None) => Some(Login::Token(decoded(token)?)),
        (name, Some(password)) => Some(Login::User { name: decoded(name.unwrap_or_default())?, password: decoded(password)? }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_taken_out_of_the_address() {
        let read = |text| Address::parse(text).map(|address| (format!("{:?}", address.servers), address.login)).unwrap();
        let (servers, login) = read("nats://betty:s3cr%40t@127.0.0.1:4222,tls://other");
        assert!(!servers.contains("betty") && !servers.contains("s3cr"), "{servers}");
        assert_eq!(login, Some(Login::User { name: "betty".into(), password: "s3cr@t".into() }));
        let (servers, login) = read("nats://t0ken@127.0.0.1");
        assert!(!servers.contains("t0ken"), "{servers}");
        assert_eq!(login, Some(Login::Token("t0ken".into())));
        assert_eq!(read("127.0.0.1:4222").1, None);
    }

    #[test]
    fn an_invalid_address_is_refused_and_not_repeated() {
        for text in ["", "nats://", "http://secret@host", "nats://secret@host:port", "ws://secret@host", "nats://a,http://secret"] {
            let error = Address::parse(text).map(|_| ()).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
