//! A terminal as a picture: text in an SVG, which can be read, searched and compared.

use std::fmt::Write;

use vt100::{Cell, Color};

use super::{SIZE, screen};

/// The size of a character, and the room around all of them.
const CHARACTER: (f64, f64) = (8.4, 19.0);
const ROOM: f64 = 18.0;
const BAR: f64 = 30.0;

/// The colours of the palette that programs have.
const PALETTE: [&str; 16] = [
    "#484f58", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf", "#b1bac4", "#6e7681",
    "#ffa198", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#ffffff",
];
const INK: &str = "#e6edf3";

/// How a run of characters looks.
#[derive(Clone, PartialEq)]
struct Style {
    ink: String,
    is_bold: bool,
    is_dim: bool,
}

impl Style {
    fn of(cell: &Cell) -> Self {
        let ink = match cell.fgcolor() {
            Color::Default => INK.to_owned(),
            Color::Idx(index) => PALETTE.get(usize::from(index)).copied().unwrap_or(INK).to_owned(),
            Color::Rgb(red, green, blue) => format!("#{red:02x}{green:02x}{blue:02x}"),
        };
        Self { ink, is_bold: cell.bold(), is_dim: cell.dim() }
    }
}

/// A run of characters on one line.
struct Run {
    column: u16,
    length: u16,
    text: String,
    style: Style,
}

/// Draws what is on a terminal after something was printed.
pub(super) fn draw(title: &str, printed: &str) -> String {
    let parser = screen(printed);
    let lines: Vec<Vec<Run>> = (0..SIZE.1).map(|row| runs(parser.screen(), row)).collect();
    let height = lines.iter().rposition(|runs| !runs.is_empty()).map_or(0, |last| last + 1);
    let (wide, tall) =
        (f64::from(SIZE.0) * CHARACTER.0 + 2.0 * ROOM, height as f64 * CHARACTER.1 + BAR + 1.5 * ROOM);
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0} {tall:.0}" width="{wide:.0}" height="{tall:.0}" role="img">
<title>{title}</title>
<style>text {{ font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre; }} .b {{ font-weight: 700; }} .d {{ opacity: .6; }}</style>
<rect width="100%" height="100%" rx="10" fill="#0d1117"/>
<circle cx="20" cy="20" r="6" fill="#ff5f57"/><circle cx="40" cy="20" r="6" fill="#febc2e"/><circle cx="60" cy="20" r="6" fill="#28c840"/>
"##
    );
    for (row, runs) in lines.iter().enumerate().take(height) {
        for run in runs {
            let x = ROOM + f64::from(run.column) * CHARACTER.0;
            let y = BAR + ROOM + row as f64 * CHARACTER.1 + 6.0;
            let length = f64::from(run.length) * CHARACTER.0;
            let class = match (run.style.is_bold, run.style.is_dim) {
                (true, _) => r#" class="b""#,
                (false, true) => r#" class="d""#,
                (false, false) => "",
            };
            // The length keeps columns in line, whatever the font is.
            let _ = writeln!(
                svg,
                r#"<text x="{x:.1}" y="{y:.0}" textLength="{length:.1}" lengthAdjust="spacingAndGlyphs" fill="{}"{class}>{}</text>"#,
                run.style.ink,
                escaped(&run.text)
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// The characters of a line, together where they look the same. Spaces at its end are nothing.
fn runs(screen: &vt100::Screen, row: u16) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for column in 0..SIZE.0 {
        let Some(cell) = screen.cell(row, column) else { continue };
        let text = if cell.has_contents() { cell.contents() } else { " " };
        let style = Style::of(cell);
        match runs.last_mut() {
            _ if cell.is_wide_continuation() => {
                if let Some(last) = runs.last_mut() {
                    last.length += 1;
                }
            }
            // Nothing can be seen of how a space looks.
            Some(last) if last.style == style || text == " " => {
                last.text.push_str(text);
                last.length += 1;
            }
            _ => runs.push(Run { column, length: 1, text: text.to_owned(), style }),
        }
    }
    for run in &mut runs {
        let kept = run.text.trim_end_matches(' ').len();
        run.length -= u16::try_from(run.text.len() - kept).unwrap_or_default();
        run.text.truncate(kept);
    }
    runs.retain(|run| !run.text.is_empty());
    runs
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_shows_the_screen_as_it_is_in_the_end() {
        let svg = draw("x", "\x1b[1mbold\x1b[0m <plain>\r\nwaiting\r\x1b[K\x1b[31mred\x1b[0m\r\n");
        let texts: Vec<&str> = svg.lines().filter(|line| line.starts_with("<text")).collect();
        assert_eq!(
            texts,
            [
                r##"<text x="18.0" y="54" textLength="33.6" lengthAdjust="spacingAndGlyphs" fill="#e6edf3" class="b">bold</text>"##,
                r##"<text x="60.0" y="54" textLength="58.8" lengthAdjust="spacingAndGlyphs" fill="#e6edf3">&lt;plain&gt;</text>"##,
                r##"<text x="18.0" y="73" textLength="25.2" lengthAdjust="spacingAndGlyphs" fill="#ff7b72">red</text>"##,
            ]
        );
    }
}
