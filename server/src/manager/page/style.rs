//! Style sheet of the manager.

use super::backends::BACKENDS;
use super::balancer::member_label_rules;
use super::requests::REQUESTS;
use super::server::{CERTIFICATES, HITS, REFUSALS, SITES};
use crate::git::browse::render::html;

/// Returns the style sheet. On a narrow screen the tables are cards, and the labels of the cards come from the columns
/// of the tables.
pub(in crate::manager) fn style_sheet() -> String {
    let tables = [BACKENDS, REQUESTS, SITES, HITS, REFUSALS, CERTIFICATES];
    let labels: String = tables.iter().map(|table| table.label_rules()).collect();
    let labels = labels + &member_label_rules();
    format!(
        "{}@media(max-width:34rem){{{}{labels}}}",
        STYLE.concat(),
        include_str!("cards.css")
    )
}

/// Style sheet in parts: the common style of generated pages, the tables and forms of the manager, and the
/// server's half of the page.
const STYLE: [&str; 5] = [
    html::STYLE[0],
    html::STYLE[1],
    html::STYLE[2],
    "header,main,footer{max-width:84rem}\
     .login{display:flex;flex-wrap:wrap;gap:.3rem .8rem;align-items:baseline;margin-top:.4rem;color:var(--soft)}\
     .error{white-space:pre-wrap;background:var(--minus);color:var(--minus-text);border-radius:8px;padding:.5rem .8rem}\
     .path{margin:0}.member h2{margin:.4rem 0}\
     .member{border:1px solid var(--line);border-radius:8px;padding:.2rem 1rem .8rem;margin:0 0 1rem}\
     .scroll table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}\
     .scroll th,.scroll td{padding:.3rem .7rem;text-align:left;white-space:nowrap;border-bottom:1px solid var(--line)}\
     .scroll .n{text-align:right}\
     thead th,dt{font-weight:400;color:var(--soft)}\
     button{font:inherit;color:var(--link);background:var(--shade);border:1px solid var(--line);border-radius:6px;padding:.2rem .8rem;cursor:pointer}\
     .inline{display:flex;flex-wrap:wrap;gap:.1rem 1.3rem}.inline div{display:flex;gap:.5rem}\
     .scroll small{display:block;color:var(--soft);white-space:normal}\
     .fields{display:grid;grid-template-columns:repeat(auto-fill,minmax(15rem,1fr));gap:.2rem 1rem;margin:.6rem 0}\
     .field{margin:.2rem 0;display:flex;flex-direction:column;gap:.15rem;align-items:flex-start}\
     .field small{color:var(--soft)}.wrong{white-space:pre-wrap;color:var(--minus-text);font-size:.9rem}\
     input,select{font:inherit;color:var(--text);background:var(--paper);border:1px solid var(--soft);border-radius:6px;padding:.2rem .4rem;max-width:100%}\
     [aria-invalid]{border:2px solid var(--minus-text)}\
     .question{border:2px solid var(--minus-text);border-radius:8px;padding:.2rem 1rem .6rem}.question h2{margin:.4rem 0}\
     details pre{overflow-x:auto}\
     summary{cursor:pointer;color:var(--soft)}",
    include_str!("server.css"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_labels_of_the_cards_are_the_heads_of_the_columns() {
        let sheet = style_sheet();
        for rule in [
            ".members td:nth-of-type(1)::before{content:\"State\"}",
            ".members td:nth-of-type(7)::before{content:\"Median \u{2264} ms\"}",
            ".members td:nth-of-type(16)::before{content:\"Checks\"}",
            ".sites td:nth-of-type(10)::before{content:\"From cache\"}",
            ".requests td:nth-of-type(1)::before{content:\"Age\"}",
        ] {
            assert!(sheet.contains(rule), "no {rule}: {sheet}");
        }
        assert_eq!(sheet.matches('{').count(), sheet.matches('}').count());
    }
}
