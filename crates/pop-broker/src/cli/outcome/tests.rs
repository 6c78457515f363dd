//! The table of what a failure comes to.

use kv_restore::Damage;

use super::*;

const TARGET: (u8, u8) = (6, 6);
const WAY: (u8, u8) = (8, 6);
const SOURCE: (u8, u8) = (1, 6);
const NEITHER: (u8, u8) = (1, 1);

/// Each kind, its codes where a broker is the source and where a folder or a file is, and a
/// word of what to do about it at a broker.
const TABLE: &[(ErrorKind, (u8, u8), &str)] = &[
    (ErrorKind::Begin, TARGET, ""),
    (ErrorKind::Staging, TARGET, ""),
    (ErrorKind::NoSpace, TARGET, "free some space"),
    (ErrorKind::Commit(Switch::NotDone), TARGET, ""),
    (ErrorKind::Commit(Switch::InDoubt), TARGET, "which"),
    (ErrorKind::Stalled, TARGET, "disk"),
    (ErrorKind::Transport, WAY, "start that broker"),
    (ErrorKind::Idle, WAY, "log"),
    (ErrorKind::TooSlow, WAY, "log"),
    (ErrorKind::PeerAborted(AbortCode::Closing), WAY, "log"),
    (
        ErrorKind::PeerAborted(AbortCode::UnknownSession),
        WAY,
        "log",
    ),
    (ErrorKind::PeerAborted(AbortCode::Idle), WAY, "log"),
    (
        ErrorKind::PeerAborted(AbortCode::SourceError),
        SOURCE,
        "log",
    ),
    (ErrorKind::PeerAborted(AbortCode::Stalled), SOURCE, "log"),
    (ErrorKind::PeerAborted(AbortCode::Busy), SOURCE, "log"),
    (ErrorKind::PeerAborted(AbortCode::Other(99)), SOURCE, "log"),
    (ErrorKind::Corrupt(Damage::Chunk), SOURCE, "network"),
    (ErrorKind::Corrupt(Damage::Totals), SOURCE, "network"),
    (ErrorKind::Corrupt(Damage::Resume), SOURCE, "network"),
    (ErrorKind::SourceGone, SOURCE, "--data-snapshot-age-max"),
    (ErrorKind::Busy, NEITHER, ""),
    (ErrorKind::Protocol, NEITHER, "same version"),
    (ErrorKind::Obsolete, NEITHER, "newer"),
    (ErrorKind::StaleEpoch, NEITHER, "newer"),
    (ErrorKind::Superseded, NEITHER, ""),
    (ErrorKind::Cancelled, NEITHER, ""),
    (ErrorKind::Closed, NEITHER, ""),
    (ErrorKind::TaskLost, NEITHER, "report it"),
];

// Mutants: a broker that is lost ends as anything else that fails; what a broker can't read or
// gives damaged, as what is wrong with the folder of this side; another backup of a folder that
// is damaged.
#[test]
fn every_kind_of_failure_has_its_code_and_its_advice() {
    let url = "tcp://broker:8083".parse().unwrap();
    let (broker, place) = (Origin::Broker(&url), Origin::Folder(Path::new("/data")));
    let file = Origin::Backup(Path::new("/a.backup"));
    for (kind, (of_broker, of_place), word) in TABLE.iter().copied() {
        let code = |from| exit(side(kind), from).code();
        assert_eq!((code(broker), code(place)), (of_broker, of_place), "{kind}");
        assert_eq!(code(file), of_place, "{kind}");
        let told = first(kind, broker).unwrap_or_default();
        assert!(
            told.contains(word) && told.is_empty() == word.is_empty(),
            "{kind}: {told}"
        );
        let here = first(kind, place).unwrap_or_default();
        assert!(!here.contains("broker"), "{kind}: {here}");
        assert!(!here.contains("backup"), "{kind}: {here}");
        let of_file = first(kind, file).unwrap_or_default();
        let is_damaged = matches!(kind, ErrorKind::Corrupt(_));
        assert_eq!(of_file.contains("another backup"), is_damaged, "{kind}");
    }
}

// Mutants: every error is of a broker that does not run; of one that can't be known.
#[test]
fn who_answers_and_is_not_trusted_is_not_said_to_be_down() {
    use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};
    let unknown = Error::InvalidCertificate(CertificateError::UnknownIssuer);
    let unwanted = Error::AlertReceived(AlertDescription::CertificateRequired);
    let plain = Error::InvalidMessage(InvalidMessage::InvalidContentType);
    let data = io::ErrorKind::InvalidData;
    for (error, word) in [
        (io::Error::new(data, unknown), "--tls-ca has"),
        (io::Error::new(data, unwanted), "--tls-certificate and"),
        (io::Error::new(data, plain), "TLS is spoken"),
        (io::Error::new(data, "nonsense"), "see that it runs"),
        (io::ErrorKind::ConnectionRefused.into(), "see that it runs"),
    ] {
        let url = "tls://broker:8083".parse().unwrap();
        let failure = Failure::from(data::SourceError::Broken { url, error });
        assert_eq!(failure.exit().code(), 8, "{failure}");
        assert!(failure.to_string().contains(word), "{failure}");
    }
}

// Mutant: what can never succeed is to be typed again.
#[test]
fn whoever_can_succeed_is_told_to_try_again() {
    for (retry, is_told) in [
        (Retry::Now, true),
        (Retry::Later, true),
        (Retry::NewerSnapshot, true),
        (Retry::Never, false),
    ] {
        let told = again(retry).unwrap_or_default();
        assert_eq!(
            told.contains("type the same command again"),
            is_told,
            "{retry:?}"
        );
    }
}

// Mutants: a code that is another for one of them; the folder, or the broker, that is not named.
#[test]
fn a_bootstrap_that_is_refused_names_what_it_is_about() {
    let url = "tcp://broker:8083".parse().unwrap();
    let transfer = Transfer {
        what: "bootstrap",
        from: Origin::Broker(&url),
        to: Path::new("/copy"),
        kept: UNCHANGED,
    };
    let broken = || data::SourceError::Broken {
        url: url.clone(),
        error: io::ErrorKind::ConnectionRefused.into(),
    };
    let refused = |busy| data::SourceError::Refused {
        url: url.clone(),
        text: "no".into(),
        busy,
    };
    let snapshot = kv_restore::SnapshotId(7);
    for (error, code, says) in [
        (BootstrapError::NotEmpty, 1, "/copy: the folder has data"),
        (BootstrapError::Awaiting { snapshot }, 10, "/copy: "),
        (BootstrapError::NoReceipt(broken()), 10, "/copy: "),
        (
            BootstrapError::Owned {
                snapshot,
                error: broken(),
            },
            1,
            "/copy: ",
        ),
        (
            BootstrapError::StaleEpoch {
                folder: 2,
                source_epoch: 1,
            },
            1,
            "/copy: ",
        ),
        (broken().into(), 8, "tcp://broker:8083 does not answer"),
        (refused(false).into(), 1, "tcp://broker:8083 refuses"),
        (refused(true).into(), 1, "again later"),
    ] {
        let failure = transfer.not_bootstrapped(error);
        assert_eq!(failure.exit().code(), code, "{failure}");
        assert!(failure.to_string().contains(says), "{failure}");
    }
}
