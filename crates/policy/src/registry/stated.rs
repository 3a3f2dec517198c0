//! Parameters of a policy or a reactor scheduler, stated after its name:
//! `pacman(alpha=0.6, beta=0.4)`.

use crate::PolicyError;

/// A parameter and where it is.
pub(super) type Param<P> = (&'static str, fn(&mut P) -> &mut f64);

/// What was stated of a policy's parameters; the policy keeps its own default of all others.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stated(Vec<(&'static str, f64)>);

impl Stated {
    /// The value of `name`, where one was stated.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(stated, _)| *stated == name).map(|(_, value)| *value)
    }

    /// The value of `name`, or `default` where none was stated.
    #[must_use]
    pub fn or(&self, name: &str, default: f64) -> f64 {
        self.get(name).unwrap_or(default)
    }

    /// `params` with those of `known` that were stated.
    #[must_use]
    pub(super) fn applied<P, const N: usize>(&self, known: [Param<P>; N], mut params: P) -> P {
        for (name, field) in known {
            let field = field(&mut params);
            *field = self.or(name, *field);
        }
        params
    }

    /// Reads what stands between the parentheses after `policy`, which takes the parameters
    /// `known`.
    ///
    /// # Errors
    /// Unknown names, one that is stated twice, and what is no finite number.
    pub(crate) fn parse(
        policy: &'static str,
        known: &[&'static str],
        text: &str,
    ) -> Result<Self, PolicyError> {
        let mut stated = Self::default();
        for part in text.split(',').map(str::trim) {
            let wrong = || PolicyError::Stated {
                policy,
                text: part.to_owned(),
                valid: if known.is_empty() { "nothing".into() } else { known.join(", ") },
            };
            let (name, value) = part.split_once('=').ok_or_else(wrong)?;
            let name = known.iter().find(|known| **known == name.trim()).ok_or_else(wrong)?;
            let value = value.trim().parse::<f64>().ok().filter(|value| value.is_finite());
            if stated.0.iter().any(|(other, _)| other == name) {
                return Err(wrong());
            }
            stated.0.push((name, value.ok_or_else(wrong)?));
        }
        Ok(stated)
    }
}

/// The name of a policy without its parameters, and these as text.
pub(crate) fn split(part: &str) -> (&str, Option<&str>) {
    match part.trim().strip_suffix(')').and_then(|part| part.split_once('(')) {
        Some((name, stated)) => (name.trim(), Some(stated)),
        None => (part.trim(), None),
    }
}
