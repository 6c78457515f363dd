//! Answers in columns.

/// Rows below a header, each column as wide as its widest cell.
pub(super) fn table<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let header = header.map(str::to_owned);
    let lines = || std::iter::once(&header).chain(rows);
    let mut widths = [0; N];
    for line in lines() {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let print = |line: &[String; N]| {
        let cells = line.iter().zip(widths);
        let cells: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        cells.join("  ").trim_end().to_owned()
    };
    lines().map(print).collect::<Vec<_>>().join("\n")
}

/// A name as other commands take it: a namespace is its own argument.
pub(super) fn namespace(name: &str) -> String {
    if name.is_empty() { "-" } else { name }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["orders".into(), "4".into()], ["a".into(), "16".into()]];
        let expected = "NAME    QUEUES\norders  4\na       16";
        assert_eq!(table(["NAME", "QUEUES"], &rows), expected);
    }
}
