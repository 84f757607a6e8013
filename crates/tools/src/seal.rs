//! Credentials of a request's servers, unreadable where a run is stored.

use std::{
    fmt, fs, io,
    io::{Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hkdf::{HKDF_SHA256, Prk, Salt},
    rand::{SecureRandom, SystemRandom},
};
use windlass_kernel::Tenant;

/// Bytes of a key.
const KEY_BYTES: usize = 32;
/// What every sealed text begins with, so that a later form can be told apart.
const FORM: u8 = 1;

/// Seals text for a tenant. What was sealed for one cannot be opened for another, nor for another purpose.
pub struct Seal {
    root: Prk,
    random: SystemRandom,
}

impl Seal {
    /// Seals with this key. Processes that share a store share the key.
    pub fn new(key: [u8; KEY_BYTES]) -> Self {
        Seal { root: Salt::new(HKDF_SHA256, b"windlass/seal").extract(&key), random: SystemRandom::new() }
    }

    /// Reads a key of 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Result<Self, SealError> {
        let digits: Option<Vec<u8>> = text.trim().chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
        let bytes: Vec<u8> = digits.unwrap_or_default().chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        bytes.try_into().map(Seal::new).map_err(|_| SealError::NotAKey)
    }

    /// Reads the key that the file keeps. If there is none, a new one is made, which only this user can read.
    pub fn from_file(path: &Path) -> Result<Self, SealError> {
        let fail = |source| SealError::File { path: path.to_owned(), source };
        if !path.try_exists().map_err(fail)? {
            make_file(path).map_err(fail)?;
        }
        let file = fs::File::open(path).map_err(fail)?;
        if file.metadata().map_err(fail)?.permissions().mode() & 0o077 != 0 {
            return Err(SealError::Readable { path: path.to_owned() });
        }
        let mut text = String::new();
        // One byte more than a key with its line end shows that the file is another one.
        file.take(2 * KEY_BYTES as u64 + 2).read_to_string(&mut text).map_err(fail)?;
        Seal::from_hex(&text)
    }

    /// Seals the text for the tenant and a purpose, which must be named to open it.
    pub(crate) fn seal(&self, tenant: &Tenant, purpose: &str, text: &[u8]) -> Result<String, SealError> {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).map_err(|_| SealError::Refused)?;
        let mut bytes = text.to_vec();
        let key = self.key(tenant)?;
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(purpose), &mut bytes)
            .map_err(|_| SealError::Refused)?;
        Ok(URL_SAFE_NO_PAD.encode([&[FORM][..], &nonce, &bytes].concat()))
    }

    /// Opens what was sealed for the same tenant and purpose with the same key.
    pub(crate) fn open(&self, tenant: &Tenant, purpose: &str, sealed: &str) -> Result<Vec<u8>, SealError> {
        let bytes = URL_SAFE_NO_PAD.decode(sealed).map_err(|_| SealError::Refused)?;
        let Some((&FORM, rest)) = bytes.split_first() else {
            return Err(SealError::Refused);
        };
        let (nonce, text) = rest.split_at_checked(NONCE_LEN).ok_or(SealError::Refused)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| SealError::Refused)?;
        let mut text = text.to_vec();
        let length = self.key(tenant)?.open_in_place(nonce, Aad::from(purpose), &mut text).map_err(|_| SealError::Refused)?.len();
        text.truncate(length);
        Ok(text)
    }

    fn key(&self, tenant: &Tenant) -> Result<LessSafeKey, SealError> {
        let info = [b"windlass/tenant/".as_slice(), tenant.as_str().as_bytes()];
        let key = self.root.expand(&info, &CHACHA20_POLY1305).map_err(|_| SealError::Refused)?;
        Ok(LessSafeKey::new(UnboundKey::from(key)))
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal(…)")
    }
}

/// Makes the file with a fresh key. Whoever comes second keeps the first one's: the file appears with all of its text or
/// not at all.
fn make_file(path: &Path) -> io::Result<()> {
    let random = SystemRandom::new();
    let mut key = [0; KEY_BYTES];
    let mut mark = [0; 8];
    let filled = random.fill(&mut key).and_then(|()| random.fill(&mut mark));
    filled.map_err(|_| io::Error::other("the system gives no random bytes"))?;
    let draft = path.with_extension(format!("{}.draft", hex(&mark)));
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let made = file.write_all(format!("{}\n", hex(&key)).as_bytes()).and_then(|()| file.sync_all());
    let kept = made.and_then(|()| match fs::hard_link(&draft, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        kept => kept,
    });
    fs::remove_file(&draft)?;
    kept?;
    // Without this the name could be lost with the power, and with it every secret sealed since.
    fs::File::open(path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")))?.sync_all()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The key is of no use, or does not fit.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The text is no key.
    #[error("a key of 64 hexadecimal digits is wanted")]
    NotAKey,
    /// The file cannot be read or made.
    #[error("the key file {} cannot be used: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others may read the file.
    #[error("the key file {} can be read by others: its mode must be 0600", path.display())]
    Readable {
        /// Which.
        path: PathBuf,
    },
    /// It was sealed with another key, for another tenant or purpose, or it was changed.
    #[error("what was sealed cannot be opened here")]
    Refused,
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; KEY_BYTES] = [7; KEY_BYTES];

    #[test]
    fn it_opens_for_its_tenant_and_purpose_alone() {
        let (seal, tenant) = (Seal::new(KEY), Tenant::from("acme"));
        let sealed = seal.seal(&tenant, "https://a/", b"secret").expect("it seals");
        assert_eq!(seal.open(&tenant, "https://a/", &sealed).expect("it opens"), b"secret");
        assert!(!sealed.contains("secret") && sealed.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')));
        assert!(matches!(seal.open(&Tenant::from("other"), "https://a/", &sealed), Err(SealError::Refused)));
        assert!(matches!(seal.open(&tenant, "https://b/", &sealed), Err(SealError::Refused)));
        assert!(matches!(Seal::new([8; KEY_BYTES]).open(&tenant, "https://a/", &sealed), Err(SealError::Refused)));
        assert_ne!(sealed, seal.seal(&tenant, "https://a/", b"secret").expect("it seals"), "no two are alike");
    }

    #[test]
    fn what_was_changed_does_not_open() {
        let (seal, tenant) = (Seal::new(KEY), Tenant::from("acme"));
        let sealed = seal.seal(&tenant, "", b"secret").expect("it seals");
        for index in 0..sealed.len() {
            let other = if &sealed[index..=index] == "A" { "B" } else { "A" };
            let changed = format!("{}{other}{}", &sealed[..index], &sealed[index + 1..]);
            assert!(seal.open(&tenant, "", &changed).is_err(), "{changed}");
        }
        for text in ["", "AQ", "not base64!"] {
            assert!(seal.open(&tenant, "", text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_key_file_is_made_once_and_for_its_owner() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("seal.key");
        let tenant = Tenant::from("acme");
        let sealed = Seal::from_file(&path).expect("it is made").seal(&tenant, "", b"x").expect("it seals");
        assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "no draft is left");
        assert_eq!(Seal::from_file(&path).expect("it is read").open(&tenant, "", &sealed).expect("it opens"), b"x");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("it can be opened up");
        assert!(matches!(Seal::from_file(&path), Err(SealError::Readable { .. })));
    }

    #[test]
    fn a_key_that_is_none_is_refused_and_none_is_shown() {
        for text in ["", "07", &"0".repeat(63), &"0".repeat(66), &"g".repeat(64)] {
            assert!(matches!(Seal::from_hex(text), Err(SealError::NotAKey)), "{text}");
        }
        assert_eq!(format!("{:?}", Seal::from_hex(&"07".repeat(32)).expect("a key")), "Seal(…)");
        assert!(matches!(Seal::from_file(Path::new("/nowhere/seal.key")), Err(SealError::File { .. })));
    }
}
