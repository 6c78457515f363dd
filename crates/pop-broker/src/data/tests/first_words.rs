//! Who does not get to its words, or says the wrong ones.

use std::{path::PathBuf, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream},
    time::{Instant, sleep},
};

use super::{
    super::{
        Access, ClientTls, DataOptions, Identity, PortTls, Token,
        hello::{self, Ask, Hello, Reply, Why},
        limits::{CONNECTIONS_MAX, HELLO_TIME_MAX},
        tls,
    },
    rig::{Rig, closed, hear, say},
};

/// A hello, cut after so many bytes.
async fn part(bytes: usize) -> Vec<u8> {
    let mut all = hello::opening_bytes().to_vec();
    let hello = Hello {
        token: None,
        ask: Ask::Fetch,
    };
    hello::write(&mut all, &hello).await.unwrap();
    assert!(bytes < all.len());
    all.truncate(bytes);
    all
}

/// P5. Mutants: each part has ten seconds of its own; the clock begins anew with each byte.
#[tokio::test(start_paused = true)]
async fn who_has_not_said_whole_words_in_ten_seconds_is_turned_away() {
    let rig = Rig::new().await;
    // Nothing, half of the opening, the opening, half a length, half a hello.
    for bytes in [0, 3, 8, 10, 20] {
        let before = rig.turned("silent");
        rig.hundred(async |mut wire| {
            let begun = Instant::now();
            wire.write_all(&part(bytes).await).await.unwrap();
            closed(&mut wire).await;
            assert_eq!(begun.elapsed(), HELLO_TIME_MAX);
        })
        .await;
        assert_eq!(rig.turned("silent") - before, 100);
    }
    // A byte a second is as good as none.
    let begun = Instant::now();
    let (mut read, mut write) = tokio::io::split(rig.dial(1));
    let trickle = async {
        for byte in part(25).await {
            if write.write_all(&[byte]).await.is_err() {
                return;
            }
            sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::join!(trickle, async {
        closed(&mut read).await;
        assert_eq!(begun.elapsed(), HELLO_TIME_MAX);
    });
    rig.is_said("silent");
    rig.serves().await;
}

/// P5, P6. Mutant: what is wrong is waited for like what is late.
#[tokio::test(start_paused = true)]
async fn nonsense_is_turned_away_at_its_first_wrong_byte() {
    let rig = Rig::new().await;
    let long = b"POPD\0\0\0\x01\xff\xff\xff\xff";
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01",
        b"KR\x01\x01",
        long,
        b"POPD\0\0\0\x01\0\0\0\x02{}",
        b"POPD\0\0\0\x01\0\0\0\x04\xff\xfe\xfd\xfc",
    ] {
        let before = rig.turned("nonsense");
        rig.hundred(async |mut wire| {
            let begun = Instant::now();
            // It may be closed before all of it was taken.
            drop(wire.write_all(bytes).await);
            closed(&mut wire).await;
            assert_eq!(begun.elapsed(), Duration::ZERO, "{bytes:?}");
        })
        .await;
        assert_eq!(rig.turned("nonsense") - before, 100, "{bytes:?}");
    }
    rig.is_said("nonsense");
    rig.serves().await;
}

/// Mutant: a look whether the port is there counts, and is a warning each time.
#[tokio::test(start_paused = true)]
async fn who_goes_in_the_middle_is_turned_away_and_who_only_looked_is_not() {
    let rig = Rig::new().await;
    rig.hundred(async |wire| drop(wire)).await;
    assert_eq!(rig.service.stats().refused, 0);
    for bytes in [2, 8, 20] {
        rig.hundred(async |mut wire| wire.write_all(&part(bytes).await).await.unwrap())
            .await;
    }
    assert_eq!(rig.turned("cut"), 300);
    rig.is_said("cut");
    rig.serves().await;
}

/// Mutant: the connection is dropped with words of the peer unread, which resets it before
/// the answer was.
#[tokio::test(start_paused = true)]
async fn a_newer_version_is_told_which_one_is_spoken_whatever_it_goes_on_to_say() {
    let rig = Rig::new().await;
    rig.hundred(async |mut wire| {
        wire.write_all(b"POPD\0\0\0\x02").await.unwrap();
        // More than the pipe holds: somebody has to read it.
        wire.write_all(&[0x7b; 40 << 10]).await.unwrap();
        let Reply::Refused { why, text } = hear(&mut wire).await else {
            panic!("it is refused");
        };
        assert_eq!(why, Why::Version);
        assert!(
            text.contains("version 2") && text.contains("only 1"),
            "{text}"
        );
    })
    .await;
    assert_eq!(rig.turned("version"), 100);
    rig.is_said("version");
    rig.serves().await;
}

/// Mutants: a missing token is let in; a prefix of it is; what is longer is.
#[tokio::test(start_paused = true)]
async fn a_token_that_is_missing_or_another_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "0123456789abcdef\n").unwrap();
    let access = Access {
        token: Some(Token::read(&file).unwrap()),
        tls: None,
    };
    let rig = Rig::with(access, DataOptions::default(), None).await;
    let long = "0123456789abcdef".repeat(64);
    let wrong = [
        None,
        Some(""),
        Some("0123456789abcde"),
        Some("0123456789abcdeF"),
        Some("0123456789abcdef0"),
        Some(long.as_str()),
    ];
    for token in wrong {
        let before = rig.turned("token");
        for ask in [
            Ask::Fetch,
            Ask::Snapshot { wanted: None },
            Ask::Handover { to: "x".into() },
        ] {
            let mut wire = rig.dial(1);
            say(&mut wire, ask, token).await;
            let refused = hear(&mut wire).await;
            assert!(
                matches!(
                    refused,
                    Reply::Refused {
                        why: Why::Token,
                        ..
                    }
                ),
                "{token:?}"
            );
        }
        assert_eq!(rig.turned("token") - before, 3);
    }
    rig.hundred(async |mut wire| {
        say(&mut wire, Ask::Fetch, wrong[3]).await;
        hear(&mut wire).await;
    })
    .await;
    assert_eq!(rig.service.stats().snapshots, 0);
    rig.is_said("token");
    assert!(rig.heard.lines(&["0123456789"]).is_empty());
    let mut wire = rig.dial(1);
    say(&mut wire, Ask::Fetch, Some("0123456789abcdef")).await;
    assert_eq!(hear(&mut wire).await, Reply::Ready);
}

/// Those that are more are turned away at once; a place is free as soon as one is.
/// Mutants: nobody is counted; a place that was taken is never given back.
#[tokio::test(start_paused = true)]
async fn no_more_connections_are_open_than_may_be() {
    let rig = Rig::new().await;
    let full: Vec<DuplexStream> = (0..CONNECTIONS_MAX).map(|_| rig.dial(1)).collect();
    assert_eq!(rig.service.stats().open, 64);
    for _ in 0..100 {
        assert!(rig.try_dial(2).is_none());
    }
    assert_eq!(rig.turned("no-room"), 100);
    rig.is_said("no-room");
    sleep(HELLO_TIME_MAX + Duration::from_millis(1)).await;
    rig.serves().await;
    drop(full);
}

/// A certificate authority, and an identity that it signed, as files.
struct Pair {
    ca: PathBuf,
    identity: Identity,
}

fn pair(folder: &std::path::Path, name: &str) -> Pair {
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let mut ca = rcgen::CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_certificate = ca.self_signed(&ca_key).unwrap();
    let issuer = rcgen::Issuer::new(ca, ca_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let signed = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let signed = signed.signed_by(&key, &issuer).unwrap();
    let write = |what: &str, text: String| {
        let path = folder.join(format!("{name}-{what}"));
        std::fs::write(&path, text).unwrap();
        path
    };
    Pair {
        ca: write("ca", ca_certificate.pem()),
        identity: Identity {
            certificate: write("certificate", signed.pem()),
            key: write("key", key.serialize_pem()),
        },
    }
}

/// Mutant: the certificate of a peer is asked for and not verified.
#[tokio::test(start_paused = true)]
async fn a_peer_with_the_certificate_of_another_or_with_none_is_turned_away() {
    let folder = tempfile::tempdir().unwrap();
    let [server, known, other] = ["server", "known", "other"].map(|name| pair(folder.path(), name));
    let port = PortTls {
        identity: server.identity,
        client_ca: Some(known.ca),
    };
    let acceptor = tls::acceptor(&port).unwrap();
    let rig = Rig::with(Access::default(), DataOptions::default(), Some(acceptor)).await;
    let connector = |identity| {
        let ca = server.ca.clone();
        tls::connector(&ClientTls { ca, identity }).unwrap()
    };
    let name = || rustls::pki_types::ServerName::try_from("localhost").unwrap();
    for connector in [connector(Some(other.identity)), connector(None)] {
        let before = rig.turned("tls");
        rig.hundred(async |wire| {
            // The client is done before the port has looked at what it was shown.
            if let Ok(mut wire) = connector.connect(name(), wire).await {
                drop(wire.write_all(&part(20).await).await);
                turned(&mut wire).await;
            }
        })
        .await;
        assert_eq!(rig.turned("tls") - before, 100);
    }
    // Who speaks no TLS at all.
    let mut plain = rig.dial(1);
    plain.write_all(&part(20).await).await.unwrap();
    turned(&mut plain).await;
    assert_eq!(rig.turned("tls"), 201);
    rig.is_said("tls");
    assert!(!rig.heard.lines(&["invalid peer certificate"]).is_empty());
    let wire = connector(Some(known.identity));
    let mut wire = wire.connect(name(), rig.dial(1)).await.unwrap();
    say(&mut wire, Ask::Fetch, None).await;
    assert_eq!(hear(&mut wire).await, Reply::Ready);
}

/// Waits until the port lets go, whatever TLS says of that.
async fn turned(wire: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    let begun = Instant::now();
    drop(wire.read_to_end(&mut Vec::new()).await);
    assert_eq!(begun.elapsed(), Duration::ZERO);
}
