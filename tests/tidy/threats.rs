//! `docs/threat-model.md` and the tests of its defences name each other.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use crate::{requirements::tests_in, root, sources};

/// The tests of each threat, by the threat in their names: `tm_01_…` shows TM-01.
fn tests_by_threat() -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (_, text) in sources(&root()) {
        for name in tests_in(&text) {
            let number = name.strip_prefix("tm_").and_then(|rest| rest.get(..2)).filter(|digits| digits.parse::<u32>().is_ok());
            if let Some(number) = number {
                found.entry(format!("TM-{number}")).or_default().insert(name.to_owned());
            }
        }
    }
    found
}

/// The tests that each section of the page names.
fn tests_by_section() -> BTreeMap<String, BTreeSet<String>> {
    let page = fs::read_to_string(root().join("docs/threat-model.md")).expect("the threat model can be read");
    let mut sections: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut section = None;
    for line in page.lines() {
        if line.starts_with('#') {
            section = line.strip_prefix("### ").and_then(|title| title.split(' ').next()).map(str::to_owned);
            sections.extend(section.iter().map(|number| (number.clone(), BTreeSet::new())));
        }
        let Some(named) = section.as_ref().and_then(|number| sections.get_mut(number)) else { continue };
        named.extend(line.split('`').skip(1).step_by(2).filter(|word| word.starts_with("tm_")).map(str::to_owned));
    }
    sections
}

#[test]
fn every_threat_is_shown_by_the_tests_that_it_names() {
    let (tests, sections) = (tests_by_threat(), tests_by_section());
    let untested: Vec<&String> = sections.iter().filter(|(_, named)| named.is_empty()).map(|(number, _)| number).collect();
    assert!(untested.is_empty(), "these threats have no test: {untested:?}");
    assert_eq!(sections, tests, "the page and the names of the tests differ");
    let _ = std::io::Write::write_all(&mut std::io::stderr().lock(), format!("threats: {} shown\n", sections.len()).as_bytes());
}
