//! Tables of cases in a text.

use super::Server;

/// The rows of a table: a line each, with `|` between its cells.
pub(crate) fn rows<const CELLS: usize>(table: &str) -> Vec<[&str; CELLS]> {
    let row = |line| -> [&str; CELLS] {
        let cells: Vec<&str> = str::split(line, '|').map(str::trim).collect();
        cells.try_into().unwrap_or_else(|_| panic!("{CELLS} cells are wanted: {line}"))
    };
    table.trim().lines().map(row).collect()
}

impl Server {
    /// The routes refuse the body of each row as the row says: the body, the code with the field
    /// that it is about, and what the message says, with `…` between its parts.
    #[track_caller]
    pub(crate) fn refuses(&self, routes: &[&str], table: &str) {
        for [body, refusal, words] in rows(table) {
            let (code, field) = refusal.split_once(' ').unwrap_or((refusal, ""));
            for path in routes {
                let said = self.post_bytes(path, body).refused(code, field);
                for part in words.split('…') {
                    said.says(part.trim());
                }
            }
        }
    }
}
