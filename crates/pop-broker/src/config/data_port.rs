//! The settings of the data port, which is off unless it is asked for.

use std::net::SocketAddr;

use pop_broker::data::{Access, DataOptions, Identity, PortTls, Token};

use super::choices::Choices;
use crate::cli::{Exit, Failure};

/// Where data is given out, to whom, and at what cost.
#[derive(Debug)]
pub(crate) struct DataPortSettings {
    pub(crate) listen: SocketAddr,
    pub(crate) access: Access,
    pub(crate) options: DataOptions,
}

impl DataPortSettings {
    /// Reads the token, and refuses what would be open to everybody or of no use.
    pub(super) fn decide(choices: &Choices) -> Result<Option<Self>, Failure> {
        let usage = |problem: String| Failure::new(Exit::Usage, problem);
        let Some(listen) = choices.data_listen else {
            let needless = choices.data_token_file.is_some()
                || choices.data_tls_certificate.is_some()
                || choices.data_tls_key.is_some()
                || choices.data_tls_client_ca.is_some();
            return match needless {
                false => Ok(None),
                true => Err(usage(
                    "a token or a certificate of the data port is given but nothing listens: add --data-listen ADDRESS, or leave it out".into(),
                )),
            };
        };
        let token = choices.data_token_file.as_deref().map(Token::read);
        let access = Access {
            token: token
                .transpose()
                .map_err(|error| usage(error.to_string()))?,
            tls: tls(choices)?,
        };
        access
            .check(listen)
            .map_err(|error| usage(error.to_string()))?;
        let mut options = DataOptions::default();
        options.rate = choices.data_rate.unwrap_or(options.rate);
        options.snapshots_max = choices
            .data_snapshots_max
            .and_then(|max| usize::try_from(max.get()).ok())
            .unwrap_or(options.snapshots_max);
        options.snapshot_age_max = choices
            .data_snapshot_age_max
            .map_or(options.snapshot_age_max, |age| age.0);
        Ok(Some(Self {
            listen,
            access,
            options,
        }))
    }
}

fn tls(choices: &Choices) -> Result<Option<PortTls>, Failure> {
    let files = (&choices.data_tls_certificate, &choices.data_tls_key);
    let client_ca = choices.data_tls_client_ca.clone();
    match files {
        (Some(certificate), Some(key)) => Ok(Some(PortTls {
            identity: Identity {
                certificate: certificate.clone(),
                key: key.clone(),
            },
            client_ca,
        })),
        (None, None) if client_ca.is_none() => Ok(None),
        _ => Err(Failure::new(
            Exit::Usage,
            "TLS of the data port needs both files: give --data-tls-certificate FILE and --data-tls-key FILE",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(choices: Choices, problem: &str) {
        let error = DataPortSettings::decide(&choices).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }

    // Mutant: the address is not looked at.
    #[test]
    fn what_would_be_open_to_everybody_is_refused_with_what_to_set() {
        let open = |address: &str| Choices {
            data_listen: Some(address.parse().unwrap()),
            ..Choices::default()
        };
        for address in ["0.0.0.0:8083", "10.0.0.1:8083", "[::]:8083"] {
            check(open(address), "--data-token-file FILE");
            check(open(address), "--data-tls-client-ca");
        }
        for address in ["127.0.0.1:8083", "[::1]:8083"] {
            assert!(DataPortSettings::decide(&open(address)).unwrap().is_some());
        }
        assert!(
            DataPortSettings::decide(&Choices::default())
                .unwrap()
                .is_none()
        );
    }

    // Mutants: a port that asks for no certificate counts as closed; a file that holds no
    // token counts as one.
    #[test]
    fn what_only_looks_closed_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let everywhere = || Choices {
            data_listen: Some("0.0.0.0:8083".parse().unwrap()),
            ..Choices::default()
        };
        let one_sided = Choices {
            data_tls_certificate: Some("c.pem".into()),
            data_tls_key: Some("k.pem".into()),
            ..everywhere()
        };
        check(one_sided, "--data-tls-client-ca");
        for (path, problem) in [
            (folder.path().join("none"), "can't be read"),
            (folder.path().to_owned(), "can't be read"),
            (file("empty", ""), "must have one line"),
            (file("blank", "\n"), "must have one line"),
            (file("short", "0123456789abcde\n"), "must have one line"),
        ] {
            let token = Choices {
                data_token_file: Some(path),
                ..everywhere()
            };
            check(token, problem);
        }
        let token = Choices {
            data_token_file: Some(file("token", "0123456789abcdef\n")),
            ..everywhere()
        };
        assert!(DataPortSettings::decide(&token).unwrap().is_some());
    }

    #[test]
    fn choices_that_contradict_are_refused() {
        let key = Choices {
            data_listen: Some("127.0.0.1:8083".parse().unwrap()),
            data_tls_key: Some("k.pem".into()),
            ..Choices::default()
        };
        check(key, "--data-tls-certificate");
        let client_ca = Choices {
            data_listen: Some("127.0.0.1:8083".parse().unwrap()),
            data_tls_client_ca: Some("ca.pem".into()),
            ..Choices::default()
        };
        check(client_ca, "--data-tls-key");
        let certificate = Choices {
            data_listen: Some("127.0.0.1:8083".parse().unwrap()),
            data_tls_certificate: Some("c.pem".into()),
            ..Choices::default()
        };
        check(certificate, "--data-tls-key");
        let token = Choices {
            data_token_file: Some("token".into()),
            ..Choices::default()
        };
        check(token, "--data-listen ADDRESS");
    }
}
