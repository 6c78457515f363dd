//! The commands that a document shows, read from its code blocks.
//!
//! A command that a reader types must be the one that was tried: CI runs what stands in the
//! README, and a command that doesn't parse fails `tidy`.

/// All `cargo xtask …` lines in the code blocks of `markdown`, without comments and prompt.
pub fn commands(markdown: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut is_code = false;
    for line in markdown.lines().map(str::trim) {
        if line.starts_with("```") {
            is_code = !is_code;
        } else if is_code {
            let line = line.strip_prefix("$ ").unwrap_or(line);
            let command = line.split(" #").next().unwrap_or(line).trim();
            if command == "cargo xtask" || command.starts_with("cargo xtask ") {
                commands.push(command.to_owned());
            }
        }
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_from_code_blocks_alone() {
        let markdown = "\
Type `cargo xtask no-code` or
cargo xtask prose
```sh
cargo xtask demo   # shows a message
$ cargo xtask run --store sled
cargo build
```
cargo xtask after
";
        assert_eq!(
            commands(markdown),
            ["cargo xtask demo", "cargo xtask run --store sled"]
        );
    }
}
