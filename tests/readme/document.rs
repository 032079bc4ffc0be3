//! A document in Markdown, taken apart.

use testing::{files, in_code, table, text_of};

/// One file in Markdown.
pub(crate) struct Document {
    /// Its path from the root of the repository.
    pub name: String,
    pub text: String,
}

/// A command line that a document shows, and what it shows behind it.
pub(crate) struct Shown {
    pub words: Vec<String>,
    pub output: String,
}

/// Every document of the repository.
pub(crate) fn documents() -> Vec<Document> {
    let names = ["engines/GPU.md".to_owned()].into_iter().chain(files(".", &["md"]));
    let found: Vec<Document> = names.map(|name| Document::read(&name)).collect();
    assert!(found.len() > 10, "the documents are found");
    found
}

impl Document {
    pub(crate) fn read(name: &str) -> Self {
        Self { name: name.to_owned(), text: text_of(name) }
    }

    /// Lines outside of blocks of code, with their numbers.
    pub(crate) fn prose(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines().filter(|(_, _, block)| block.is_none()).map(|(number, line, _)| (number, line))
    }

    /// Words of the pieces of code within the prose.
    pub(crate) fn code_words(&self) -> Vec<String> {
        let prose: Vec<&str> = self.prose().map(|(_, line)| line).collect();
        in_code(&prose.join("\n")).flat_map(str::split_whitespace).map(str::to_owned).collect()
    }

    /// The commands of the blocks that show a terminal.
    pub(crate) fn commands(&self) -> Vec<Shown> {
        let mut commands: Vec<(String, String)> = Vec::new();
        let mut continued = false;
        for (_, line, _) in self.lines().filter(|(_, _, block)| *block == Some("console")) {
            let start = line.strip_prefix("$ ");
            let typed = start.or(continued.then_some(line));
            continued = typed.is_some_and(|typed| typed.ends_with('\\'));
            let text = typed.map(|typed| typed.trim_end_matches('\\'));
            match (start.and(text), text, commands.last_mut()) {
                (Some(text), ..) => commands.push((text.to_owned(), String::new())),
                (None, Some(text), Some((command, _))) => command.push_str(text),
                (None, None, Some((_, output))) => *output += &format!("{line}\n"),
                _ => {}
            }
        }
        let shown = |(command, output): (String, String)| Shown { words: words(&command), output };
        commands.into_iter().map(shown).collect()
    }

    /// The rows of the table whose head begins with `head`.
    pub(crate) fn rows(&self, head: &str) -> Vec<&str> {
        table(&self.text, head)
    }

    /// Every line with its number, and the language of the block that it stands in.
    fn lines(&self) -> impl Iterator<Item = (usize, &str, Option<&str>)> {
        let mut block = None;
        self.text.lines().enumerate().filter_map(move |(index, line)| {
            let Some(language) = line.trim_start().strip_prefix("```") else {
                return Some((index + 1, line, block));
            };
            block = if block.is_some() { None } else { Some(language) };
            None
        })
    }
}

/// The words of a command line: what stands in single quotes is one, variables in front and a `&`
/// behind are none.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for (index, part) in command.split('\'').enumerate() {
        let mut pieces = if index % 2 == 1 { vec![part] } else { part.split(' ').collect() };
        let last = words.last_mut().expect("there is one");
        last.push_str(pieces.remove(0));
        words.extend(pieces.into_iter().map(str::to_owned));
    }
    let is_variable = |word: &String| word.split_once('=').is_some_and(|(name, _)| is_upper(name));
    let words = words.into_iter().filter(|word| !word.is_empty() && word != "&");
    words.skip_while(is_variable).collect()
}

fn is_upper(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
}
