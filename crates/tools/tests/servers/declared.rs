//! Servers that a request declares: the allowed addresses, and how secrets are kept.

use serde_json::json;
use windlass_kernel::{ServerSource, TaskStatus, Tenant, ToolServer};
use windlass_ports::{DeclaredServer, ServerError, ToolServers};
use windlass_tests::{McpManners, McpServer, QUERY};
use windlass_tools::{Limits, ServerConfig, SetupError};

use crate::{a_call, acme, config, declare, run, servers, tools};

const TOKEN: &str = "Bearer s3cret-token";

#[tokio::test]
async fn headers_reach_only_the_server() {
    let server = McpServer::with(McpManners { authorization: Some(TOKEN.into()), ..McpManners::default() }).await;
    let servers = servers(vec![], &["127.0.0.1"], Limits::default());
    let declared = declare(&servers, &acme(), &server.url, &[("Authorization", TOKEN), ("X-Team", "blue")]);
    let stored = serde_json::to_string(&declared).expect("it can be stored");
    assert!(!stored.contains("s3cret") && !stored.contains("blue") && !format!("{declared:?}").contains("s3cret"), "{stored}");
    let declared: ToolServer = serde_json::from_str(&stored).expect("it can be read");
    assert_eq!(servers.list(&acme(), &declared).await.expect("it lists").len(), McpServer::TOOLS);
    assert_eq!(run(&servers, &declared, "echo", json!({ "text": "hi" })).await, (TaskStatus::Success, json!("hi")));
    assert_eq!(server.seen("x-team"), ["blue"]);
}

#[tokio::test]
async fn tm_17_the_query_of_an_address_is_sealed_and_reaches_the_server() {
    let server = McpServer::start().await;
    let servers = servers(vec![], &["127.0.0.1"], Limits::default());
    let with_query = |query: &str| format!("{}?{query}", server.url);
    for headers in [vec![], vec![("X-Team", "blue")]] {
        let declared = declare(&servers, &acme(), &with_query("key=s3cret-key"), &headers);
        let stored = serde_json::to_string(&declared).expect("it can be stored");
        assert!(!stored.contains("s3cret") && stored.contains(&server.url), "{stored}");
        let declared: ToolServer = serde_json::from_str(&stored).expect("it can be read");
        assert_eq!(run(&servers, &declared, "echo", json!({ "text": "hi" })).await, (TaskStatus::Success, json!("hi")));
        assert!(servers.list(&Tenant::from("other"), &declared).await.is_err(), "it is not theirs");
    }
    assert_eq!(server.seen(QUERY), ["key=s3cret-key"]);
    assert_eq!(servers.sessions(), 2);
    // Another query has another session, because it may be another credential.
    let other = declare(&servers, &acme(), &with_query("key=other"), &[]);
    servers.list(&acme(), &other).await.expect("it lists");
    assert_eq!(servers.sessions(), 3);
    // It is not in the message of a failure either.
    let (status, why) = run(&servers, &declare(&servers, &acme(), &with_query("key=s3cret-key"), &[]), "s3cret-key", json!({})).await;
    assert_eq!(status, TaskStatus::Failed);
    assert!(why.as_str().is_some_and(|why| why.contains("there is no tool …")), "{why}");
    // A run of an earlier version stores the whole address in plain text.
    let earlier = ToolServer { label: "mine".into(), source: ServerSource::Declared { url: with_query("key=s3cret-key"), sealed: None } };
    assert_eq!(run(&servers, &earlier, "echo", json!({ "text": "hi" })).await.0, TaskStatus::Success);
}

#[tokio::test]
async fn what_one_tenant_declared_opens_for_no_other() {
    let server = McpServer::start().await;
    let servers = servers(vec![], &["127.0.0.1"], Limits::default());
    let declared = declare(&servers, &acme(), &server.url, &[("Authorization", TOKEN)]);
    let refused = servers.list(&Tenant::from("other"), &declared).await.expect_err("it is not theirs");
    assert!(refused.to_string().contains("cannot be opened"), "{refused}");
    let mut call = a_call(&json!({}), crate::PATIENT);
    call.tenant = Tenant::from("other");
    assert_eq!(servers.run(&declared, "echo", call).await.status, TaskStatus::Failed);

    // It cannot be opened for another address either, so that changing a row cannot send the secret elsewhere.
    let ServerSource::Declared { sealed, .. } = declared.source else { panic!("it is declared") };
    let url = server.url.replace("/mcp", "/other");
    let moved = ToolServer { label: "mine".into(), source: ServerSource::Declared { url, sealed } };
    assert!(servers.list(&acme(), &moved).await.is_err());
    assert_eq!(server.requests(), 0);
}

#[tokio::test]
async fn tm_16_a_server_without_tls_is_shown_no_credentials() {
    let servers = servers(vec![], &["10.0.0.0/8", "tools.internal"], Limits::default());
    let with = |url: &str, headers: &[(&str, &str)]| {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        servers.declare(&acme(), DeclaredServer { label: "mine".into(), url: url.into(), headers })
    };
    for url in ["http://10.0.0.1/mcp", "http://tools.internal/mcp", "http://tools.example.com/mcp"] {
        for header in ["Authorization", "X-Key"] {
            let refused = with(url, &[(header, TOKEN)]).expect_err(url);
            assert!(matches!(&refused, ServerError::Refused(why) if why.contains("https://") && !why.contains("s3cret")), "{refused}");
        }
        with(url, &[]).expect("without credentials it may be asked");
        with(&url.replace("http:", "https:"), &[("Authorization", TOKEN)]).expect("TLS protects them");
    }
}

#[tokio::test]
async fn what_a_server_repeats_of_our_secrets_is_hidden() {
    let server = McpServer::with(McpManners { authorization: Some("another".into()), ..McpManners::default() }).await;
    let servers = servers(vec![], &["127.0.0.1"], Limits::default());
    let declared = declare(&servers, &acme(), &server.url, &[("Authorization", TOKEN)]);
    let failed = servers.list(&acme(), &declared).await.expect_err("it is turned away");
    let why = format!("it answered with HTTP 401; its address is {}", server.url);
    assert_eq!(failed, ServerError::Failed { label: "mine".into(), why });
    // A regular answer may repeat the secret too.
    server.behave(|manners| manners.authorization = None);
    let (status, why) = run(&servers, &declared, "s3cret-token", json!({})).await;
    assert_eq!(status, TaskStatus::Failed);
    assert!(why.as_str().is_some_and(|why| why.contains("there is no tool …")), "{why}");
}

#[tokio::test]
async fn addresses_inside_are_refused_before_anything_is_sent() {
    let server = McpServer::start().await;
    let servers = servers(vec![config(&server)], &[], Limits::default());
    let port = server.url.rsplit_once(':').expect("it has a port").1;
    for host in ["127.0.0.1", "[::ffff:127.0.0.1]", "2130706433", "169.254.169.254", "[fd00:ec2::254]", "0.0.0.0"] {
        let declared = DeclaredServer { label: "mine".into(), url: format!("http://{host}:{port}"), headers: vec![] };
        let refused = servers.declare(&acme(), declared).expect_err(host);
        assert!(matches!(&refused, ServerError::Refused(why) if why.contains("egress.allow")), "{refused}");
    }
    // A forbidden name is detected when it is resolved; a stored address is checked again.
    let by_name = declare(&servers, &acme(), &format!("http://localhost:{port}"), &[]);
    let stored = ToolServer { label: "mine".into(), source: ServerSource::Declared { url: server.url.clone(), sealed: None } };
    for inside in [by_name, stored] {
        let refused = servers.list(&acme(), &inside).await.expect_err("it is inside");
        assert!(matches!(&refused, ServerError::Refused(why) if why.contains("egress.allow")), "{refused}");
        let (status, why) = run(&servers, &inside, "echo", json!({})).await;
        assert_eq!(status, TaskStatus::Failed);
        assert!(why.as_str().is_some_and(|why| why.contains("refused")), "{why}");
    }
    assert_eq!(server.requests(), 0);
    servers.list(&acme(), &tools()).await.expect("the operator's own is not judged");
}

#[tokio::test]
async fn an_allowed_name_is_reached_and_a_redirect_is_not_followed() {
    let inside = McpServer::start().await;
    let server = McpServer::start().await;
    let servers = servers(vec![config(&server)], &["localhost"], Limits::default());
    let declared = declare(&servers, &acme(), &server.url.replace("127.0.0.1", "localhost"), &[]);
    assert_eq!(servers.list(&acme(), &declared).await.expect("it is allowed").len(), McpServer::TOOLS);

    server.behave(|manners| manners.redirect = Some(inside.url.clone()));
    let fresh = declare(&servers, &acme(), &server.url.replace("127.0.0.1", "localhost"), &[("x-key", "fresh")]);
    let failed = servers.list(&acme(), &fresh).await.expect_err("it points elsewhere");
    assert!(failed.to_string().contains("HTTP 307"), "{failed}");
    assert!(servers.list(&acme(), &tools()).await.is_err());
    assert_eq!(inside.requests(), 0);
}

#[tokio::test]
async fn a_declaration_that_is_none_is_refused() {
    let servers = servers(vec![], &[], Limits::default());
    let with = |url: &str, headers: &[(&str, &str)]| {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        servers.declare(&acme(), DeclaredServer { label: "mine".into(), url: url.into(), headers })
    };
    for (url, headers) in [
        ("ftp://example.com", vec![]),
        ("http://me:s3cret@example.com", vec![]),
        ("https://example.com", vec![("Host", "s3cret")]),
        ("https://example.com", vec![("Mcp-Session-Id", "s3cret")]),
        ("https://example.com", vec![("x-a", "s3cret\r\nx-b: 1")]),
    ] {
        let refused = with(url, &headers).expect_err(url);
        assert!(matches!(refused, ServerError::Refused(_)) && !refused.to_string().contains("s3cret"), "{refused}");
    }
    assert!(with("https://example.com/mcp?team=blue", &[("Authorization", TOKEN)]).is_ok());
}

#[tokio::test]
async fn a_configured_token_is_sent_as_a_bearers_and_never_printed() {
    let server = McpServer::with(McpManners { authorization: Some(TOKEN.into()), ..McpManners::default() }).await;
    for authorization in ["s3cret-token", TOKEN] {
        let config = ServerConfig {
            authorization: Some(authorization.into()),
            headers: vec![("x-team".into(), "s3cret-team".into())],
            ..config(&server)
        };
        assert!(!format!("{config:?}").contains("s3cret"), "{config:?}");
        let servers = servers(vec![config], &[], Limits::default());
        assert_eq!(servers.list(&acme(), &tools()).await.expect("it lists").len(), McpServer::TOOLS);
    }
    assert_eq!(server.seen("x-team"), ["s3cret-team"]);
}

#[tokio::test]
async fn a_configuration_that_cannot_be_used_is_refused_without_its_secrets() {
    let _ = servers(vec![], &[], Limits::default());
    let bad = |configured: Vec<ServerConfig>| {
        let seal = windlass_tools::Seal::from_hex(&"07".repeat(32)).expect("a key");
        let limits = Limits::default();
        windlass_tools::Servers::new(configured, windlass_tools::Egress::default(), seal, std::sync::Arc::new(crate::Wall), limits)
            .err()
            .expect("it is refused")
    };
    let good = ServerConfig { label: "a".into(), url: "https://example.com".into(), ..ServerConfig::default() };
    for configured in [
        vec![ServerConfig { url: "example.com".into(), ..good.clone() }],
        vec![ServerConfig { authorization: Some("s3cret\n".repeat(2)), ..good.clone() }],
        vec![ServerConfig { headers: vec![("Host".into(), "s3cret".into())], ..good.clone() }],
        vec![ServerConfig {
            authorization: Some("s3cret".into()),
            headers: vec![("Authorization".into(), "s3cret".into())],
            ..good.clone()
        }],
        vec![good.clone(), good.clone()],
    ] {
        let error = bad(configured);
        assert!(matches!(&error, SetupError::Server { label, .. } if label == "a"), "{error}");
        assert!(!error.to_string().contains("s3cret"), "{error}");
    }
}
