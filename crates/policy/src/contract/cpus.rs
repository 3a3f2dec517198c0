//! Lists of CPUs as the kernel writes them, such as `0-3,8`.

use std::fmt::Display;
use std::ops::Add;

/// Those that the text names, in its order; `None` where it is no such list. A number is below
/// 65,536.
#[must_use]
pub fn list<Cpu: From<u16>>(text: &str) -> Option<Vec<Cpu>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to) = (from.parse::<u16>().ok()?, to.parse::<u16>().ok()?);
        if from > to {
            return None;
        }
        cpus.extend((from..=to).map(Cpu::from));
    }
    Some(cpus)
}

/// Ascending CPUs as a list.
#[must_use]
pub fn text<Cpu: Copy + Display + PartialEq + Add<Output = Cpu> + From<u8>>(
    cpus: &[Cpu],
) -> String {
    let runs = cpus.chunk_by(|cpu, next| *cpu + Cpu::from(1) == *next);
    let run = |run: &[Cpu]| match run {
        [first, .., last] => format!("{first}-{last}"),
        _ => run[0].to_string(),
    };
    runs.map(run).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_is_a_list_of_cpus_or_none(text in "[0-9,\\-x ]{0,20}") {
            if let Some(cpus) = list::<u16>(&text) {
                prop_assert!(cpus.len() <= 11 << 16);
            }
        }

        #[test]
        fn a_list_of_cpus_reads_back(cpus in prop::collection::btree_set(0..500_usize, 0..60)) {
            let cpus: Vec<_> = cpus.into_iter().collect();
            prop_assert_eq!(list(&text(&cpus)), Some(cpus));
        }
    }

    #[test]
    fn lists_of_cpus_are_the_kernel_s() {
        assert_eq!(text(&[0_u16, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
        assert_eq!(list("0-3,8"), Some(vec![0_u16, 1, 2, 3, 8]));
        assert_eq!(list::<u16>(""), Some(vec![]));
        for wrong in ["3-1", "a", "0-", "70000", "1;2"] {
            assert_eq!(list::<u16>(wrong), None, "{wrong}");
        }
    }
}
