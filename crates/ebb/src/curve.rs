//! Files with the throughput of disks by fan duty: `ebb characterise` writes them, for `eadc`.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use ebb_policy::cooling::{Curve, CurveError};
use ebb_trace::files;

use ebb_cli::{output, usage};

/// A curve as it is kept in a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CurveFile<Points> {
    /// Where it comes from, for people.
    #[serde(default)]
    source: String,
    /// (fan duty, share of the most that the disks did), by rising duty.
    points: Points,
}

/// Points with their places in the text.
type Placed = Spanned<Vec<Spanned<(f64, f64)>>>;

/// Writes `points` (fan duty, share of the throughput) to `path`.
///
/// # Errors
/// Where that is not possible.
pub fn write(path: &Path, source: String, points: Vec<(f64, f64)>) -> Result<()> {
    let text = toml::to_string(&CurveFile { source, points })?;
    output::write(path, |to| Ok(to.write_all(text.as_bytes())?))
}

/// Reads a curve that `ebb characterise --out` wrote.
///
/// # Errors
/// A file that cannot be read or is no curve.
pub fn read(path: &Path) -> Result<Curve> {
    let text = files::text(path)
        .map_err(|error| usage(format!("{}: cannot read the curve: {error}", path.display())))?;
    let CurveFile::<Placed> { points, .. } = toml::from_str(&text)
        .map_err(|error| usage(format!("{}: {}", path.display(), error.to_string().trim_end())))?;
    let all = points.span().start;
    let (points, places): (Vec<_>, Vec<_>) =
        points.into_inner().into_iter().map(|point| (*point.as_ref(), point.span().start)).unzip();
    Curve::new(points).map_err(|error| {
        let place = match error {
            CurveError::Range { point, .. }
            | CurveError::Order { point, .. }
            | CurveError::Rising { point, .. } => places.get(point - 1).copied(),
            CurveError::Short(_) => None,
        };
        let line = 1 + text[..place.unwrap_or(all)].matches('\n').count();
        usage(format!("{}:{line}: {error}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_curve_comes_back_from_its_file_and_a_wrong_one_is_told_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("curve.toml");
        fs::write(&path, "points = [[0.2, 1.0], [0.5, 0.97], [1.0, 0.4]]\n").unwrap();
        assert_eq!(read(&path).unwrap().throughput(1.0), 0.4);
        for (text, line, says) in [
            ("points = [[0.2, 0.5], [0.5, 0.9]]", 1, "faster fans do not speed disks up"),
            ("points = [\n[0.2, 0.5],\n[0.5, 0.9],\n]", 3, "faster fans do not speed disks up"),
            ("source = \"x\"\n\npoints = [\n[0.5, 0.5],\n[0.2, 0.5]]", 5, "order the points"),
            ("points = [\n[0.2, 0.5],\n# more\n[0.5, nan]]", 4, "throughput is NaN"),
            ("points = [\n[0.2, 0.5], [0.5, 0.4],\n[40, 0.3]]", 3, "duty is 40"),
            ("# none\npoints = [[0.2, 0.5]]", 2, "at least two"),
            ("\npoint = []", 2, "unknown field"),
        ] {
            fs::write(&path, text).unwrap();
            let message = read(&path).unwrap_err().to_string();
            let place = format!("curve.toml:{line}: ");
            // The TOML reader tells the line in its own words.
            let told = message.contains(&place) || message.contains(&format!("line {line},"));
            assert!(told && message.contains(says), "{message}");
        }
    }
}
