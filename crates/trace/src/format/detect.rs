//! Which format a file is in, from its first bytes.

use super::{Format, Line, vscsi};

/// The format of a file that begins with `head`; `whole` says that there is nothing after it.
///
/// The binary formats are known by their marks. Of the text formats the one wins whose parser
/// accepts most of the whole lines; their columns differ in number, separator or kind, so that
/// only a line that fits two (whole numbers in five columns: `mqsim` and `msr-cut`) leaves a
/// tie, which goes to the one that is listed first.
pub(crate) fn detect(head: &[u8], whole: bool) -> Option<Format> {
    if head.starts_with(b"PAR1") {
        return Some(Format::Parquet);
    }
    if vscsi::version(head).is_some() {
        return Some(Format::Vscsi);
    }
    // MQSim's columns all being whole numbers, it is the narrower of the two.
    let order = [Format::Mqsim].into_iter().chain(Format::ALL);
    let (mut best, mut most) = (None, 0);
    for format in order {
        let accepted = accepted(format, head, whole);
        if accepted > most {
            (best, most) = (Some(format), accepted);
        }
    }
    best
}

/// How many lines of `head` the parser of `format` takes for what it knows.
fn accepted(format: Format, head: &[u8], whole: bool) -> usize {
    let Some(mut parser) = format.parser() else { return 0 };
    let end = if whole {
        head.len()
    } else {
        memchr::memrchr(b'\n', head).map_or(head.len(), |newline| newline + 1)
    };
    head[..end]
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii_end)
        .filter(|line| !line.is_empty())
        .filter(|line| {
            matches!(parser.line(line), Ok(Line::Request(_) | Line::Header | Line::Other))
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{darshan, ebb_csv};

    #[test]
    fn each_text_format_is_known_by_its_lines() {
        let biosnoop = "TIME(s)     COMM           PID    DISK    T SECTOR     BYTES   LAT(ms)\n\
                        0.000004    supervise      1950   xvda1   W 13092560   4096       0.74\n";
        let darshan = format!("{}\n2.7599,2.759941,0,0,R,0,32\n", darshan::HEADING);
        let ebb = format!("{}\n0,R,0,512,0,0,\n", ebb_csv::HEADING);
        for (format, text) in [
            (Format::Msr, "128172299571726563,prxy,0,Write,1105182720,512,2072\n"),
            (Format::MsrCut, "0.000 0 3242508288 4096 0\n45.304 0 11403917312 512 0\n"),
            (Format::Mqsim, "938513000 4 264719034 16 0\n"),
            (Format::Tencent, "1538323200,12910952,128,0,1063\n"),
            (Format::TencentReplay, "0.000,104,1,4096,42414080,0.097,4096\n"),
            (Format::Alibaba, "0,R,126703661056,4096,1577808000000046\n"),
            (Format::Spc, "0,20941264,8192,W,0.551706\n"),
            (Format::Fio, "fio version 3 iolog\n2 sdb add\n"),
            (Format::Fio, "fio version 2 iolog\n/dev/sdb add\n"),
            (Format::Blkparse, "  8,0    3    1   0.000000000   697  G   W 223490 + 8 [x]\n"),
            (Format::Biosnoop, biosnoop),
            (Format::Darshan, &darshan),
            (Format::EbbCsv, &ebb),
        ] {
            assert_eq!(detect(text.as_bytes(), true), Some(format), "{text}");
            let cut = format!("{text}{}", &text[..text.len() / 2]);
            assert_eq!(detect(cut.as_bytes(), false), Some(format), "{text}");
            let with_a_bad_line = format!("{text}{text}nonsense,,\n");
            assert_eq!(detect(with_a_bad_line.as_bytes(), true), Some(format), "{text}");
        }
    }

    #[test]
    fn nonsense_is_no_format() {
        for text in ["", "\n\n", "hello world\n", "1,2\n", "a,b,c,d,e\n", "{\"a\":1}\n"] {
            assert_eq!(detect(text.as_bytes(), true), None, "{text}");
        }
    }
}
