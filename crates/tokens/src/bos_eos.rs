//! Detection of the BOS and EOS tokens.
//!
//! The sources, in this order: the token that the user names; the token that a configuration file beside the
//! `tokenizer.json` names ([`ConfigTokens`]); the token that the post-processor puts before or after a sequence; a
//! special token with a well-known name. A name that some models use for both is BOS only if there is no other
//! candidate. If several tokens match and one is to be added, loading fails.

use serde_json::Value;

use crate::error::{LoadError, SequenceEnd};
use crate::info::SpecialToken;
use crate::options::TokenizerOptions;

type Result<T> = std::result::Result<T, LoadError>;

/// Well-known names of BOS tokens. A test lists the models that use them.
const BOS_NAMES: [&str; 12] = [
    "<s>",
    "<|begin_of_text|>",
    "<bos>",
    "<BOS>",
    "[BOS]",
    "[CLS]",
    "<|startoftext|>",
    "<|bos|>",
    "<BOS_TOKEN>",
    "<seed:bos>",
    "<\u{ff5c}begin\u{2581}of\u{2581}sentence\u{ff5c}>",
    "<\u{ff5c}hy_begin\u{2581}of\u{2581}sentence\u{ff5c}>",
];
/// Well-known names of EOS tokens.
const EOS_NAMES: [&str; 14] = [
    "</s>",
    "<|end_of_text|>",
    "<eos>",
    "<EOS>",
    "[EOS]",
    "[SEP]",
    "<|endoftext|>",
    "<|eos|>",
    "<EOS_TOKEN>",
    "<|END_OF_TURN_TOKEN|>",
    "<seed:eos>",
    "<\u{ff5c}end\u{2581}of\u{2581}sentence\u{ff5c}>",
    "<\u{ff5c}hy_end\u{2581}of\u{2581}sentence\u{ff5c}>",
    "<\u{ff5c}hy_eos\u{ff5c}>",
];
/// BOS if no other token matches.
const BOS_FALLBACKS: [&str; 2] = ["<|endoftext|>", "<|end_of_text|>"];

/// The BOS and EOS tokens that configuration files beside a `tokenizer.json` name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigTokens {
    /// The BOS token; `None` if no file mentions it.
    pub bos: Option<ConfigToken>,
    /// The EOS token; `None` if no file mentions it.
    pub eos: Option<ConfigToken>,
}

/// A token that a configuration file names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigToken {
    /// Name of the file, for messages.
    pub file: String,
    /// The token; `None` if the file states that there is none.
    pub token: Option<String>,
    /// Name of another file that names another token, and that token.
    pub contradiction: Option<(String, String)>,
}

/// Result of the search for BOS or EOS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FoundToken {
    /// Exactly one token matches.
    Token(SpecialToken),
    /// No token matches.
    None,
    /// Several tokens match.
    Several(Vec<String>),
}

impl FoundToken {
    /// Returns the token if exactly one matches.
    pub(crate) fn token(self) -> Option<SpecialToken> {
        match self {
            FoundToken::Token(token) => Some(token),
            FoundToken::None | FoundToken::Several(_) => None,
        }
    }
}

/// The sources of a token, other than the file of the tokenizer.
struct TokenRequest<'a> {
    end: SequenceEnd,
    /// The token that the user names.
    named: Option<&'a str>,
    /// What a configuration file states.
    config: Option<&'a ConfigToken>,
    /// Whether the token is added to texts.
    is_added: bool,
}

/// A token with the source that determined it.
#[derive(Debug)]
struct DeterminedToken {
    token: FoundToken,
    /// The token's name, if it is added and only a configuration file determines it.
    from_config: Option<String>,
    /// Descriptions of contradictions between the sources of an added token.
    conflicts: Vec<String>,
}

impl TokenRequest<'_> {
    /// Determines the token. `in_file` finds the token that the tokenizer itself defines; `id_of` looks up a string in
    /// the whole vocabulary.
    fn determine(
        &self,
        special: &[SpecialToken],
        id_of: impl Fn(&str) -> Option<u32>,
        in_file: impl FnOnce() -> FoundToken,
    ) -> Result<DeterminedToken> {
        let &Self { end, named, config, is_added } = self;
        let determined = |token| DeterminedToken { token, from_config: None, conflicts: Vec::new() };
        let token = |id, name: &str| FoundToken::Token(SpecialToken { id, token: name.to_owned() });
        if let Some(name) = named {
            let unknown =
                || LoadError::UnknownToken { token: name.to_owned(), special_tokens: special.to_vec() };
            return Ok(determined(token(id_of(name).ok_or_else(unknown)?, name)));
        }
        let in_file = in_file();
        let Some(ConfigToken { file, token: name, contradiction }) = config else {
            return Ok(determined(in_file));
        };
        let mut conflicts = Vec::new();
        let mut conflict = |stated: &str, other: String, used: &str| {
            if is_added {
                let (add, option) = (end.adding_option(), end.option());
                conflicts.push(format!(
                    "{file} {stated}, but {other}; {add} adds {used:?}; {option} names another token"
                ));
            }
        };
        let Some(name) = name else {
            if let FoundToken::Token(SpecialToken { token, .. }) = &in_file {
                let stated = format!("states that there is no {} token", end.name());
                conflict(&stated, format!("the tokenizer has {token:?}"), token);
            }
            return Ok(DeterminedToken { conflicts, ..determined(in_file) });
        };
        let Some(id) = id_of(name) else {
            if is_added {
                return Err(LoadError::UnknownConfigToken {
                    end,
                    file: file.clone(),
                    token: name.clone(),
                    special_tokens: special.to_vec(),
                });
            }
            return Ok(determined(in_file));
        };
        let stated = format!("names the {} token {name:?}", end.name());
        if let Some((other, token)) = contradiction {
            conflict(&stated, format!("{other} names {token:?}"), name);
        }
        match &in_file {
            FoundToken::Token(found) if found.token == *name => {
                return Ok(DeterminedToken { conflicts, ..determined(in_file) });
            }
            FoundToken::Token(found) => {
                conflict(&stated, format!("by the tokenizer itself, it is {:?}", found.token), name);
            }
            FoundToken::None | FoundToken::Several(_) => {}
        }
        Ok(DeterminedToken { token: token(id, name), from_config: is_added.then(|| name.clone()), conflicts })
    }
}

/// The BOS and EOS tokens, before the options are complete.
pub(crate) struct DeterminedEnds {
    bos: DeterminedToken,
    eos: DeterminedToken,
}

/// The BOS and EOS tokens, if there is exactly one each.
pub(crate) struct SequenceEnds {
    pub(crate) bos: Option<SpecialToken>,
    pub(crate) eos: Option<SpecialToken>,
    /// Contradictions between the sources of added tokens.
    pub(crate) warnings: Vec<String>,
}

impl DeterminedEnds {
    /// Determines both tokens; the parameters are as in [`TokenRequest::determine`].
    pub(crate) fn new(
        options: &TokenizerOptions,
        config: &ConfigTokens,
        special: &[SpecialToken],
        id_of: &impl Fn(&str) -> Option<u32>,
        in_file: impl Fn(SequenceEnd) -> FoundToken,
    ) -> Result<Self> {
        let determine = |end, named: &Option<String>, config: &Option<ConfigToken>, is_added| {
            let request = TokenRequest { end, named: named.as_deref(), config: config.as_ref(), is_added };
            request.determine(special, id_of, || in_file(end))
        };
        Ok(Self {
            bos: determine(SequenceEnd::Bos, &options.bos_token, &config.bos, options.add_bos)?,
            eos: determine(SequenceEnd::Eos, &options.eos_token, &config.eos, options.add_eos)?,
        })
    }

    /// Returns the id of the token at `end` if the options add it.
    pub(crate) fn added(
        &self,
        end: SequenceEnd,
        options: &TokenizerOptions,
        special: &[SpecialToken],
    ) -> Result<Option<u32>> {
        let (is_added, found) = match end {
            SequenceEnd::Bos => (options.add_bos, &self.bos.token),
            SequenceEnd::Eos => (options.add_eos, &self.eos.token),
        };
        is_added.then(|| required(end, found, special)).transpose()
    }

    /// Returns the tokens, and stores in `options` those that only a configuration file determines.
    pub(crate) fn store_in(self, options: &mut TokenizerOptions) -> SequenceEnds {
        let Self { bos, eos } = self;
        options.bos_token = options.bos_token.take().or(bos.from_config);
        options.eos_token = options.eos_token.take().or(eos.from_config);
        let warnings = bos.conflicts.into_iter().chain(eos.conflicts).collect();
        SequenceEnds { bos: bos.token.token(), eos: eos.token.token(), warnings }
    }
}

/// Finds the token that the tokenizer itself defines for `end`. `id_of` looks up a string in the whole vocabulary.
pub(crate) fn find(
    end: SequenceEnd,
    post_processor: &Value,
    special: &[SpecialToken],
    id_of: impl Fn(&str) -> Option<u32>,
) -> FoundToken {
    let token = |name: &str, id: u32| SpecialToken { id, token: name.to_owned() };
    let mut around = Vec::new();
    around_sequence(post_processor, end, &mut around);
    match around.as_slice() {
        [] => {}
        [one] => {
            return match one.id.or_else(|| id_of(&one.token)) {
                Some(id) => FoundToken::Token(token(&one.token, id)),
                None => FoundToken::None,
            };
        }
        _ => return FoundToken::Several(around.into_iter().map(|added| added.token).collect()),
    }
    let names: &[&str] = match end {
        SequenceEnd::Bos => &BOS_NAMES,
        SequenceEnd::Eos => &EOS_NAMES,
    };
    let mut fitting: Vec<_> = special.iter().filter(|t| names.contains(&t.token.as_str())).cloned().collect();
    let in_vocabulary = |names: &[&str]| -> Vec<_> {
        names.iter().filter_map(|name| id_of(name).map(|id| token(name, id))).collect()
    };
    if fitting.is_empty() {
        fitting = in_vocabulary(names);
    }
    if fitting.is_empty() && end == SequenceEnd::Bos {
        fitting = in_vocabulary(&BOS_FALLBACKS);
    }
    match fitting.as_slice() {
        [] => FoundToken::None,
        [one] => FoundToken::Token(one.clone()),
        several => FoundToken::Several(several.iter().map(|t| t.token.clone()).collect()),
    }
}

/// Returns the tokens that a post-processor puts before a sequence. `id_of` looks up a string in the whole vocabulary.
pub(crate) fn start_tokens(post_processor: &Value, id_of: impl Fn(&str) -> Option<u32>) -> Vec<SpecialToken> {
    let mut around = Vec::new();
    around_sequence(post_processor, SequenceEnd::Bos, &mut around);
    around
        .into_iter()
        .filter_map(|AddedAround { token, id }| {
            Some(SpecialToken { id: id.or_else(|| id_of(&token))?, token })
        })
        .collect()
}

/// Returns the id of the token to be added at `end`, or an error unless exactly one matches.
fn required(end: SequenceEnd, found: &FoundToken, special: &[SpecialToken]) -> Result<u32> {
    match found {
        FoundToken::Token(token) => Ok(token.id),
        FoundToken::None => Err(LoadError::NoSequenceToken { end, special_tokens: special.to_vec() }),
        FoundToken::Several(candidates) => {
            Err(LoadError::AmbiguousSequenceToken { end, candidates: candidates.clone() })
        }
    }
}

/// A token that a post-processor adds. It need not have the id that the vocabulary gives to the string.
struct AddedAround {
    token: String,
    /// `None` if the post-processor states none.
    id: Option<u32>,
}

/// Appends the special tokens that the post-processor puts at `end` of a single sequence.
fn around_sequence(post_processor: &Value, end: SequenceEnd, out: &mut Vec<AddedAround>) {
    match post_processor.get("type").and_then(Value::as_str) {
        Some("Sequence") => {
            for processor in post_processor.get("processors").and_then(Value::as_array).into_iter().flatten()
            {
                around_sequence(processor, end, out);
            }
        }
        Some("BertProcessing" | "RobertaProcessing") => {
            let field = if end == SequenceEnd::Bos { "cls" } else { "sep" };
            let part = |at: usize| post_processor.get(field).and_then(|pair| pair.get(at));
            out.extend(
                part(0)
                    .and_then(Value::as_str)
                    .map(|token| AddedAround { token: token.to_owned(), id: part(1).and_then(id_in) }),
            );
        }
        Some("TemplateProcessing") => {
            let pieces = template_pieces(post_processor.get("single"));
            let Some(sequence) = pieces.iter().position(Option::is_none) else { return };
            let side = match end {
                SequenceEnd::Bos => &pieces[..sequence],
                SequenceEnd::Eos => &pieces[sequence + 1..],
            };
            for name in side.iter().flatten() {
                let defined = post_processor.get("special_tokens").and_then(|tokens| tokens.get(name));
                let part = |part: &str| defined.and_then(|token| token.get(part)).and_then(Value::as_array);
                let Some(ids) = part("ids") else {
                    out.push(AddedAround { token: name.clone(), id: None });
                    continue;
                };
                // A piece of a template may have another name than its token, and several tokens.
                out.extend(ids.iter().enumerate().map(|(at, id)| {
                    let token = part("tokens").and_then(|tokens| tokens.get(at)).and_then(Value::as_str);
                    AddedAround { token: token.unwrap_or(name).to_owned(), id: id_in(id) }
                }));
            }
        }
        _ => {}
    }
}

fn id_in(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok())
}

/// Parses a template, which is a list or one string, into pieces: special tokens by name, `None` for the sequence.
fn template_pieces(single: Option<&Value>) -> Vec<Option<String>> {
    match single {
        Some(Value::Array(pieces)) => pieces
            .iter()
            .map(|p| p.pointer("/SpecialToken/id").and_then(Value::as_str).map(str::to_owned))
            .collect(),
        Some(Value::String(pieces)) => pieces
            .split_whitespace()
            .map(|p| if p.starts_with('$') { None } else { p.split(':').next().map(str::to_owned) })
            .collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn special(names: &[&str]) -> Vec<SpecialToken> {
        (0..).zip(names).map(|(id, t)| SpecialToken { id, token: (*t).to_owned() }).collect()
    }

    fn find_in(
        end: SequenceEnd,
        named: Option<&str>,
        post_processor: &Value,
        names: &[&str],
    ) -> Result<FoundToken> {
        let request = TokenRequest { end, named, config: None, is_added: true };
        determine(&request, post_processor, names).map(|determined| determined.token)
    }

    fn determine(
        request: &TokenRequest<'_>,
        post_processor: &Value,
        names: &[&str],
    ) -> Result<DeterminedToken> {
        let special = special(names);
        let id_of = |name: &str| special.iter().find(|t| t.token == name).map(|t| t.id);
        request.determine(&special, id_of, || find(request.end, post_processor, &special, id_of))
    }

    fn token(found: Result<FoundToken>) -> String {
        match found.unwrap() {
            FoundToken::Token(t) => t.token,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_post_processor_takes_precedence_over_names() {
        let template = json!({"type": "Sequence", "processors": [{"type": "ByteLevel"}, {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<go>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                       {"SpecialToken": {"id": "<stop>", "type_id": 0}}]}]});
        let names = ["<s>", "</s>", "<go>", "<stop>"];
        assert_eq!(token(find_in(SequenceEnd::Bos, None, &template, &names)), "<go>");
        assert_eq!(token(find_in(SequenceEnd::Eos, None, &template, &names)), "<stop>");
        assert_eq!(token(find_in(SequenceEnd::Eos, Some("</s>"), &template, &names)), "</s>");
        let as_string = json!({"type": "TemplateProcessing", "single": "<go> $A:0 <stop>:1"});
        assert_eq!(token(find_in(SequenceEnd::Eos, None, &as_string, &names)), "<stop>");
        let roberta = json!({"type": "RobertaProcessing", "cls": ["<go>", 2], "sep": ["<stop>", 3]});
        assert_eq!(token(find_in(SequenceEnd::Bos, None, &roberta, &names)), "<go>");
    }

    #[test]
    fn the_ids_are_those_of_the_post_processor() {
        let names = ["[UNK]", "[CLS]", "[SEP]"];
        let template = |ids: Value| {
            json!({"type": "TemplateProcessing", "single": "start $A [SEP]", "special_tokens": {
                "start": {"id": "start", "ids": ids, "tokens": ["[CLS]"]},
                "[SEP]": {"id": "[SEP]", "ids": [70000], "tokens": ["[SEP]"]}}})
        };
        let id = |end, post_processor: &Value| match find_in(end, None, post_processor, &names).unwrap() {
            FoundToken::Token(token) => token.id,
            other => panic!("{other:?}"),
        };
        assert_eq!(id(SequenceEnd::Bos, &template(json!([7]))), 7);
        assert_eq!(id(SequenceEnd::Eos, &template(json!([7]))), 70_000);
        let several = find_in(SequenceEnd::Bos, None, &template(json!([7, 8])), &names).unwrap();
        assert!(matches!(several, FoundToken::Several(_)), "{several:?}");
        let found = find_in(SequenceEnd::Bos, None, &template(json!([1])), &names).unwrap();
        assert_eq!(found.token().unwrap().token, "[CLS]", "the name of the token, not of the piece");
        let bert = json!({"type": "BertProcessing", "cls": ["[CLS]", 4], "sep": ["[SEP]", 5]});
        assert_eq!((id(SequenceEnd::Bos, &bert), id(SequenceEnd::Eos, &bert)), (4, 5));
    }

    #[test]
    fn endoftext_is_bos_only_without_another_candidate() {
        assert_eq!(token(find_in(SequenceEnd::Bos, None, &Value::Null, &["<|endoftext|>"])), "<|endoftext|>");
        assert_eq!(token(find_in(SequenceEnd::Bos, None, &Value::Null, &["<|endoftext|>", "<s>"])), "<s>");
    }

    #[test]
    fn ambiguous_and_missing_tokens_are_errors() {
        let names = ["<s>", "[CLS]"];
        let found = find_in(SequenceEnd::Bos, None, &Value::Null, &names).unwrap();
        let error = required(SequenceEnd::Bos, &found, &special(&names)).unwrap_err();
        assert!(error.to_string().contains("<s>, [CLS]"), "{error}");
        let found = find_in(SequenceEnd::Eos, None, &Value::Null, &names).unwrap();
        let error = required(SequenceEnd::Eos, &found, &special(&names)).unwrap_err();
        assert!(error.help().unwrap().contains("`eos_token`"), "{error}");
        assert!(find_in(SequenceEnd::Eos, Some("<nope>"), &Value::Null, &names).is_err());
    }

    #[test]
    fn configuration_files_take_precedence_over_the_tokenizer_but_not_over_the_user() {
        let bert = json!({"type": "BertProcessing", "cls": ["[CLS]", 0], "sep": ["[SEP]", 1]});
        let names = ["[CLS]", "[SEP]", "<|im_end|>", "</s>"];
        let config = |token: Option<&str>| {
            let file = "tokenizer_config.json".to_owned();
            Some(ConfigToken { file, token: token.map(str::to_owned), contradiction: None })
        };
        let eos = |named, config: Option<ConfigToken>, is_added, post_processor: &Value| {
            let request = TokenRequest { end: SequenceEnd::Eos, named, config: config.as_ref(), is_added };
            determine(&request, post_processor, &names)
        };
        // A token that contradicts the post-processor. The two well-known names alone contradict nothing.
        for (post_processor, is_contradicted) in [(&bert, true), (&Value::Null, false)] {
            let found = eos(None, config(Some("<|im_end|>")), true, post_processor).unwrap();
            assert_eq!(found.token.token().unwrap().token, "<|im_end|>");
            assert_eq!(found.from_config.as_deref(), Some("<|im_end|>"));
            assert_eq!(found.conflicts.len(), usize::from(is_contradicted));
            for part in ["tokenizer_config.json", "\"[SEP]\"", "`add_eos` adds \"<|im_end|>\"", "`eos_token`"]
            {
                assert!(found.conflicts.iter().all(|text| text.contains(part)), "{:?}", found.conflicts);
            }
        }
        // The same token as by the post-processor is not stored, so that the options stay the same.
        let same = eos(None, config(Some("[SEP]")), true, &bert).unwrap();
        assert!(same.from_config.is_none() && same.conflicts.is_empty());
        let mut two_files = config(Some("[SEP]"));
        two_files.as_mut().unwrap().contradiction =
            Some(("special_tokens_map.json".to_owned(), "</s>".to_owned()));
        let found = eos(None, two_files, true, &bert).unwrap();
        assert_eq!(found.token.token().unwrap().token, "[SEP]");
        assert!(
            found.conflicts[0].contains("special_tokens_map.json names \"</s>\""),
            "{:?}",
            found.conflicts
        );
        let explicit = eos(Some("</s>"), config(Some("<|im_end|>")), true, &bert).unwrap();
        assert_eq!(explicit.token.token().unwrap().token, "</s>");
        assert!(explicit.from_config.is_none() && explicit.conflicts.is_empty());
        // A token that is not added is only described.
        let described = eos(None, config(Some("<|im_end|>")), false, &bert).unwrap();
        assert_eq!(described.token.token().unwrap().token, "<|im_end|>");
        assert!(described.from_config.is_none() && described.conflicts.is_empty());
        // No token, and one that does not exist.
        let none = eos(None, config(None), true, &bert).unwrap();
        assert_eq!(none.token.token().unwrap().token, "[SEP]");
        assert!(none.conflicts[0].contains("states that there is no EOS token"));
        let error = eos(None, config(Some("<gone>")), true, &bert).unwrap_err();
        let parts = ["tokenizer_config.json", "EOS", "\"<gone>\""];
        assert!(parts.iter().all(|part| error.to_string().contains(part)), "{error}");
        assert!(error.help().unwrap().contains("`eos_token`"));
        assert!(eos(None, config(Some("<gone>")), false, &bert).is_ok());
    }

    /// The special tokens of published models and, without their configuration files, the tokens that are found.
    /// `None`: several tokens match or none does, so that the user must name one.
    ///
    /// Names were compared with files in public repositories, `special_tokens_map.json` unless another is named:
    ///
    /// | family | repository | BOS, EOS |
    /// |---|---|---|
    /// | DeepSeek R1 | Evilcarbon/DeepSeek-R1-Distill-Qwen-32B, `tokenizer_config.json` | as objects of the type `AddedToken` |
    /// | Llama 3.1 | Mark-teams/llm-llama-v3.1-chatbot | `<|begin_of_text|>`, `<|end_of_text|>` |
    /// | Llama 3.1, chat | MiMiGame-1/Reflection-Llama-3.1-70B | `<|begin_of_text|>`, `<|eot_id|>` |
    /// | Mixtral, chat | JakobJohannesson/mixtral_dolphin_v2.5 | `<s>`, `<|im_end|>` |
    /// | Gemma (PaliGemma) | guanyuch/colpali_gc | `<bos>`, `<eos>` |
    /// | Falcon | Decentralised-AI/falcon-40b, `tokenizer_config.json` | none, `<|endoftext|>` |
    /// | Falcon 3 | PRITHIVSAKTHIUR/Triangulum | none, `<|endoftext|>` |
    /// | StarCoder | Decentralised-AI/WizardCoder-15B-1.0-GPTQ | `<|endoftext|>`, `<|endoftext|>` |
    /// | Pythia | Avent-IQ/pythia-410m, `tokenizer_config.json` | `<|endoftext|>`, `<|endoftext|>` |
    /// | SmolLM 2, chat | eiszazel/SmolLM2-135M-Instruct-onnx-ryzenai-1.7-hybrid | `<|im_start|>`, `<|im_end|>` |
    /// | Qwen 2.5, chat | NaiveAI-Labs/Naive-N0.5-Flash | none, `<|im_end|>` |
    /// | EXAONE | RkFeeder/LG-AI-Research | `[BOS]`, `[|endofturn|]` |
    /// | Hunyuan 3 | Fisher-Ju/Hy3-preview, `tokenizer_config.json` | with U+FF5C bars and `hy_` |
    /// | Command-R | huggingface/transformers, the tests of `CohereTokenizerFast` | `<BOS_TOKEN>`, `<|END_OF_TURN_TOKEN|>` |
    /// | OLMo 2 | allenai/OLMo, `olmo_data/tokenizers/allenai_dolma2.json` | only `<|endoftext|>` |
    /// | OLMo 1, chat | allenai/OLMo, `tokenizers/olmo-7b-instruct-hf.json` | only `<|endoftext|>` |
    /// | GLM-4 | JaredNie/GLM-4, `glm-4-9b-chat/tokenizer_config.json` | none, `<|endoftext|>` |
    /// | Phi-2 | HashirDS/smart-tutor-phi2-model, `tokenizer_config.json` | `<|endoftext|>`, `<|endoftext|>` |
    /// | Phi-3 | `tokenizer_config.json`, quoted in a program | `<s>`, `<|endoftext|>`; `</s>` is not special |
    /// | gpt-oss | `tokenizer_config.json`, quoted in a document | `<|startoftext|>`, `<|return|>` |
    ///
    /// The configuration of OLMoE 0125, chat, names `|||IP_ADDRESS|||` as both, according to a table that was made from
    /// it. Kimi K2 and K3 (`[BOS]`, `[EOS]`) were only found in tests of programs that read their files. The files of
    /// other models in the test were not found: BLOOM, InternLM 2, ERNIE, Granite, Yi, Jamba, Seed-OSS, nanochat, Phi-4.
    #[test]
    fn the_names_are_those_of_published_models() {
        let deepseek = [
            "<\u{ff5c}begin\u{2581}of\u{2581}sentence\u{ff5c}>",
            "<\u{ff5c}end\u{2581}of\u{2581}sentence\u{ff5c}>",
        ];
        let models: [(&[&str], Option<&str>, Option<&str>); 24] = [
            // DeepSeek V2, V3, R1, Coder.
            (
                &[deepseek[0], deepseek[1], "<\u{ff5c}\u{2581}pad\u{2581}\u{ff5c}>"],
                Some(deepseek[0]),
                Some(deepseek[1]),
            ),
            // Llama 2, Mistral, Nemotron, ERNIE, InternLM 2, BLOOM.
            (&["<unk>", "<s>", "</s>"], Some("<s>"), Some("</s>")),
            // Llama 3, SmolLM 3.
            (
                &["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"],
                Some("<|begin_of_text|>"),
                Some("<|end_of_text|>"),
            ),
            // Granite 3 and 4.
            (
                &["<|end_of_text|>", "<|fim_prefix|>", "<|start_of_role|>"],
                Some("<|end_of_text|>"),
                Some("<|end_of_text|>"),
            ),
            // GPT-2, Phi-2, Falcon, StarCoder 2, Pythia.
            (&["<|endoftext|>"], Some("<|endoftext|>"), Some("<|endoftext|>")),
            // OLMo 2.
            (
                &[
                    "<|endoftext|>",
                    "<|fim_prefix|>",
                    "<|im_start|>",
                    "<|im_end|>",
                    "<|endofprompt|>",
                    "<|pad|>",
                ],
                Some("<|endoftext|>"),
                Some("<|endoftext|>"),
            ),
            // Qwen 2 and 3, SmolLM 2, Phi-4.
            (&["<|endoftext|>", "<|im_start|>", "<|im_end|>"], Some("<|endoftext|>"), Some("<|endoftext|>")),
            // gpt-oss, whose configuration names `<|return|>` as EOS, Yi, Jamba.
            (
                &[
                    "<|startoftext|>",
                    "<|endoftext|>",
                    "<|return|>",
                    "<|start|>",
                    "<|end|>",
                    "<|endofprompt|>",
                ],
                Some("<|startoftext|>"),
                Some("<|endoftext|>"),
            ),
            // GLM-4.
            (
                &[
                    "<|endoftext|>",
                    "[MASK]",
                    "[gMASK]",
                    "[sMASK]",
                    "<sop>",
                    "<eop>",
                    "<|system|>",
                    "<|user|>",
                ],
                Some("<|endoftext|>"),
                Some("<|endoftext|>"),
            ),
            // Phi-3.
            (
                &["<unk>", "<s>", "<|endoftext|>", "<|assistant|>", "<|end|>"],
                Some("<s>"),
                Some("<|endoftext|>"),
            ),
            // A model in which both are special.
            (&["<unk>", "<s>", "</s>", "<|endoftext|>", "<|end|>"], Some("<s>"), None),
            // Gemma.
            (&["<pad>", "<eos>", "<bos>", "<unk>"], Some("<bos>"), Some("<eos>")),
            // Command-R.
            (
                &["<PAD>", "<UNK>", "<BOS_TOKEN>", "<EOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"],
                Some("<BOS_TOKEN>"),
                None,
            ),
            // BERT, DeBERTa, ModernBERT.
            (&["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], Some("[CLS]"), Some("[SEP]")),
            // T5, MarianMT.
            (&["<pad>", "</s>", "<unk>"], None, Some("</s>")),
            // RoBERTa, XLM-R, CamemBERT.
            (&["<s>", "<pad>", "</s>", "<unk>", "<mask>"], Some("<s>"), Some("</s>")),
            // Kimi K2 and K3.
            (&["[BOS]", "[EOS]", "<|im_end|>", "<|end_of_msg|>"], Some("[BOS]"), Some("[EOS]")),
            // Seed-OSS.
            (&["<seed:bos>", "<seed:pad>", "<seed:eos>"], Some("<seed:bos>"), Some("<seed:eos>")),
            // Hunyuan.
            (&["<|startoftext|>", "<|endoftext|>", "<|eos|>"], Some("<|startoftext|>"), None),
            // Hunyuan 3. Its configuration names the second EOS.
            (
                &[
                    "<\u{ff5c}hy_begin\u{2581}of\u{2581}sentence\u{ff5c}>",
                    "<\u{ff5c}hy_end\u{2581}of\u{2581}sentence\u{ff5c}>",
                    "<\u{ff5c}hy_\u{2581}pad\u{2581}\u{ff5c}>",
                    "<\u{ff5c}hy_eos\u{ff5c}>",
                ],
                Some("<\u{ff5c}hy_begin\u{2581}of\u{2581}sentence\u{ff5c}>"),
                None,
            ),
            // EXAONE.
            (&["[PAD]", "[BOS]", "[EOS]", "[UNK]", "[|endofturn|]"], Some("[BOS]"), Some("[EOS]")),
            // nanochat.
            (&["<|bos|>", "<|user_start|>", "<|assistant_end|>"], Some("<|bos|>"), None),
            // CLIP.
            (&["<|startoftext|>", "<|endoftext|>"], Some("<|startoftext|>"), Some("<|endoftext|>")),
            // Nemotron Nano 2.
            (&["<unk>", "<s>", "</s>", "<SPECIAL_11>", "<SPECIAL_12>"], Some("<s>"), Some("</s>")),
        ];
        for (names, bos, eos) in models {
            let found =
                |end| find_in(end, None, &Value::Null, names).unwrap().token().map(|token| token.token);
            assert_eq!(
                (found(SequenceEnd::Bos).as_deref(), found(SequenceEnd::Eos).as_deref()),
                (bos, eos),
                "{names:?}"
            );
        }
    }
}
