//! Tables of cases in a text.

/// The rows of a table: a line each, with `|` between its cells.
pub(crate) fn rows<const CELLS: usize>(table: &str) -> Vec<[&str; CELLS]> {
    let row = |line| -> [&str; CELLS] {
        let cells: Vec<&str> = str::split(line, '|').map(str::trim).collect();
        cells.try_into().unwrap_or_else(|_| panic!("{CELLS} cells are wanted: {line}"))
    };
    table.trim().lines().map(row).collect()
}
