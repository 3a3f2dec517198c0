//! Rows of cells for a terminal of any width.

use ratatui::style::Stylize;
use ratatui::text::{Line, Span};

/// Between two columns.
const GAP: usize = 2;
/// The last column is text, which is wrapped: it has so much room at least.
const TEXT: usize = 20;
/// What goes on in the next line begins so far in, where columns do not stand beside each other.
const INDENT: usize = 2;

/// Rows below a head.
pub struct Sheet<const N: usize> {
    head: [&'static str; N],
    rows: Vec<[Span<'static>; N]>,
}

impl<const N: usize> Sheet<N> {
    /// Without rows.
    pub fn new(
        head: [&'static str; N],
        rows: impl IntoIterator<Item = [Span<'static>; N]>,
    ) -> Self {
        Self { head, rows: rows.into_iter().collect() }
    }

    /// Columns beside each other, the last one wrapped. Where there is no room for that, each row
    /// is a text in which the head's words stand before their values. Nothing without rows.
    pub fn lines(&self, width: usize) -> Vec<Line<'static>> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        let last = N.saturating_sub(1);
        let widths: Vec<usize> = (0..last)
            .map(|at| {
                let cells = self.rows.iter().map(|row| row[at].width());
                cells.max().unwrap_or(0).max(self.head[at].chars().count())
            })
            .collect();
        let begin = widths.iter().map(|width| width + GAP).sum();
        if begin + TEXT > width {
            return self.rows.iter().flat_map(|row| self.text(row, width)).collect();
        }
        let head = self.head.map(|word| Span::from(word).dim());
        let rows = [&head].into_iter().chain(&self.rows);
        rows.flat_map(|row| {
            let padded = row.iter().zip(&widths).flat_map(|(cell, width)| {
                [cell.clone(), " ".repeat(width + GAP - cell.width()).into()]
            });
            wrapped(padded.collect(), words(&row[last]), begin, width)
        })
        .collect()
    }

    fn text(&self, row: &[Span<'static>; N], width: usize) -> Vec<Line<'static>> {
        let told = self.head.iter().zip(row).filter(|(_, cell)| !cell.content.is_empty());
        let told = told.flat_map(|(head, cell)| words(&Span::from(*head).dim()).chain(words(cell)));
        wrapped(Vec::new(), told, INDENT, width)
    }
}

/// The words of a text, in its style.
pub fn words(text: &Span<'static>) -> impl Iterator<Item = Span<'static>> + use<> {
    let words: Vec<_> = text.content.split_whitespace().map(str::to_owned).collect();
    let style = text.style;
    words.into_iter().map(move |word| Span::styled(word, style))
}

/// `words` after what the first line begins with; lines after it begin `indent` further in.
pub fn wrapped(
    begin: Vec<Span<'static>>,
    words: impl Iterator<Item = Span<'static>>,
    indent: usize,
    width: usize,
) -> Vec<Line<'static>> {
    let (mut all, mut line) = (Vec::new(), Line::from(begin));
    let mut is_begin = true;
    for word in words {
        if !is_begin && line.width() + 1 + word.width() > width {
            all.push(std::mem::replace(&mut line, Line::from(" ".repeat(indent))));
            is_begin = true;
        }
        if !is_begin {
            line.push_span(" ");
        }
        line.push_span(word);
        is_begin = false;
    }
    all.push(line);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(lines: &[Line<'_>]) -> Vec<String> {
        lines.iter().map(|line| line.to_string().trim_end().to_owned()).collect()
    }

    #[test]
    fn columns_stand_beside_each_other_where_there_is_room_and_nothing_is_left_out_where_not() {
        let rows = [
            ["fan duty".into(), "40 %".into(), "a reason of more words than fit".into()],
            ["cores".into(), "".into(), "short".into()],
        ];
        let sheet = Sheet::new(["control", "given", "why"], rows);
        let wide = [
            "control   given  why",
            "fan duty  40 %   a reason of more",
            "                 words than fit",
            "cores            short",
        ];
        assert_eq!(told(&sheet.lines(37)), wide);
        let narrow = [
            "control fan duty",
            "  given 40 % why a",
            "  reason of more",
            "  words than fit",
            "control cores why",
            "  short",
        ];
        assert_eq!(told(&sheet.lines(18)), narrow);
    }
}
