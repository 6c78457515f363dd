//! The help teaches.

use crate::bench::run;

fn help(arguments: &[&str]) -> String {
    let output = run(&[arguments, &["--help"]].concat());
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_command_has_help() {
    for command in [
        &[][..],
        &["serve"],
        &["topic"],
        &["topic", "create"],
        &["topic", "list"],
        &["topic", "describe"],
        &["topic", "delete"],
        &["group"],
        &["group", "create"],
        &["group", "list"],
        &["group", "delete"],
        &["retention"],
        &["retention", "show"],
        &["retention", "confirm"],
        &["quarantine"],
        &["quarantine", "list"],
        &["quarantine", "redrive"],
        &["quarantine", "drop"],
        &["bootstrap"],
        &["handover"],
        &["handover", "finish"],
        &["handover", "undo"],
        &["data"],
        &["data", "show"],
        &["data", "rate"],
        &["backup"],
        &["restore"],
        &["migrate"],
    ] {
        let text = help(command);
        assert!(text.contains("Usage: pop-broker"), "{command:?}: {text}");
    }
}

#[test]
fn commands_of_several_parts_show_examples() {
    for command in [
        "serve",
        "topic",
        "group",
        "retention",
        "quarantine",
        "bootstrap",
        "handover",
        "data",
        "backup",
        "restore",
        "migrate",
    ] {
        let text = help(&[command]);
        assert!(text.contains("\nExamples:\n"), "{command}: {text}");
    }
}

// Catches: a code that scripts know and no help tells of; what decides what is logged.
#[test]
fn commands_that_move_data_tell_their_exit_codes_and_how_to_see_more() {
    for command in ["backup", "restore", "migrate", "bootstrap", "handover"] {
        let text = help(&[command]);
        let (_, codes) = text.split_once("\nExit codes:\n").unwrap();
        let codes = codes.lines().filter_map(|it| it.split_whitespace().next());
        let codes: Vec<_> = codes.filter_map(|it| it.parse::<u8>().ok()).collect();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 130], "{command}");
        assert!(text.contains("\n  POP_LOG  "), "{command}: {text}");
    }
}

#[test]
fn every_setting_has_an_environment_variable_and_a_default() {
    let text = help(&["serve"]);
    let flags = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("--"));
    let mut flags: Vec<_> = flags.filter_map(|line| line.split(' ').next()).collect();
    flags.sort_unstable();
    assert_eq!(flags.len(), 29, "{flags:?}");
    for flag in flags {
        let variable = format!("[env: POP_{}=", flag.replace('-', "_").to_uppercase());
        assert!(text.contains(&variable), "{flag}");
    }
    // All but the file, the two of a certificate, and the data port with what lets peers in,
    // which are absent by default.
    assert_eq!(text.matches("[default: ").count(), 21, "{text}");
}
