use super::*;
use crate::tasks::testing::real;

#[test]
fn gpt_neox_is_told_by_its_tokens() {
    let Some(dir) = real("gpt-neox-20b-tokenizer") else {
        return;
    };
    let found = Found::read(&dir.join("tokenizer.json")).unwrap();
    assert_eq!(found.sha256, GPT_NEOX);
    assert!(found.vocabulary().unwrap().is_gpt_neox());
}
