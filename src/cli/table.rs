//! Tables for people: one header line, columns as wide as their cells, cut only where there is a limit.

/// Space between two columns.
const GAP: usize = 2;
/// No column is cut below this many characters.
const MIN_COLUMN: usize = 8;

/// Rows under one header.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    pub(crate) fn new<const N: usize>(header: [&str; N]) -> Self {
        Self { header: header.iter().map(|h| (*h).to_owned()).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        // A cell is one line whatever an agent wrote into it.
        let cells = cells.into_iter().map(|c| c.replace(['\n', '\t', '\r'], " ")).collect();
        self.rows.push(cells);
    }

    /// Whether there is nothing below the header.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Lines of the table; `limit` is the widest a line may be.
    pub(crate) fn render(&self, limit: Option<usize>) -> Vec<String> {
        let mut widths: Vec<usize> = self.header.iter().map(|h| h.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        if let Some(limit) = limit {
            shrink(&mut widths, limit);
        }
        std::iter::once(&self.header).chain(&self.rows).map(|row| line(row, &widths)).collect()
    }
}

/// Takes from the widest column until the line fits.
fn shrink(widths: &mut [usize], limit: usize) {
    loop {
        let total: usize = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        let Some(widest) = widths.iter_mut().max() else { return };
        if total <= limit || *widest <= MIN_COLUMN {
            return;
        }
        *widest -= 1;
    }
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let mut text = String::new();
    for (cell, width) in cells.iter().zip(widths) {
        let count = cell.chars().count();
        if count > *width {
            text.extend(cell.chars().take(width.saturating_sub(1)));
            text.push('…');
        } else {
            text.push_str(cell);
            text.extend(std::iter::repeat_n(' ', width - count));
        }
        text.push_str("  ");
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario 7 of the surfaces: a long name is whole when piped and cut on a terminal only.
    #[test]
    fn cells_are_cut_only_where_there_is_a_limit() {
        let name = "n".repeat(90);
        let mut table = Table::new(["RUN", "WORKFLOW"]);
        table.row(["r1".to_owned(), name.clone()]);
        let piped = table.render(None);
        assert_eq!(piped, [String::from("RUN  WORKFLOW"), format!("r1   {name}")]);
        let narrow = table.render(Some(40));
        assert!(narrow.iter().all(|l| l.chars().count() <= 40), "{narrow:?}");
        assert!(narrow[1].ends_with('…'));
    }

    #[test]
    fn a_cell_stays_one_line() {
        let mut table = Table::new(["A"]);
        table.row(["x\ny".to_owned()]);
        assert_eq!(table.render(None), ["A", "x y"]);
    }
}
