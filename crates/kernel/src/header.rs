//! Headers of items from outside: what the engine needs to know of an item whose content has the format of an API.
//!
//! The content is stored byte for byte and never decoded here. The API that it came through reads it once and makes the header, which says
//! what the item is, and where in the content its texts are. Prompts are built from headers, so that only the API knows its format.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

/// A part of an item's content: its first byte and its length. Of a text, it is the inside of a JSON string, without the quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span(pub u32, pub u32);

/// What an item from outside is. `T` are its texts and `J` its pieces of JSON: spans as it is stored, strings and values once it is read.
///
/// The stored names are short, because a header is stored with every item that needs one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ItemHeader<T = Span, J = Span> {
    /// A message.
    #[serde(rename = "m")]
    Message {
        /// Who wrote it.
        #[serde(rename = "r")]
        role: Role,
        /// What it contains.
        #[serde(rename = "c")]
        content: Content<T, J>,
    },
    /// A call that the client repeats, because an earlier answer of the model made it.
    #[serde(rename = "c")]
    Call {
        /// The client's id of the call.
        #[serde(rename = "i")]
        id: T,
        /// The name of the tool.
        #[serde(rename = "t")]
        tool: T,
        /// The arguments, if it has any.
        #[serde(rename = "a", skip_serializing_if = "Option::is_none")]
        arguments: Option<Arguments<T>>,
    },
    /// The result of a call that the client made.
    #[serde(rename = "r")]
    Result {
        /// The id of the call.
        #[serde(rename = "c")]
        call: T,
        /// The output.
        #[serde(rename = "o")]
        output: Output<T, J>,
        /// The whole item, for a conversation that does not have the call.
        #[serde(rename = "j")]
        item: J,
    },
    /// A call that a server made, with its result.
    #[serde(rename = "s")]
    ServerCall {
        /// The id of the item.
        #[serde(rename = "i")]
        id: T,
        /// The label of the tool server.
        #[serde(rename = "s", skip_serializing_if = "Option::is_none")]
        server: Option<T>,
        /// The name of the tool on that server.
        #[serde(rename = "t", skip_serializing_if = "Option::is_none")]
        tool: Option<T>,
        /// The arguments, if it has any.
        #[serde(rename = "a", skip_serializing_if = "Option::is_none")]
        arguments: Option<T>,
        /// The result, if it has one.
        #[serde(rename = "o", skip_serializing_if = "Option::is_none")]
        outcome: Option<Outcome<T>>,
    },
    /// Reasoning that its provider accepts back.
    #[serde(rename = "t")]
    Reasoning {
        /// The kind of provider that made it.
        #[serde(rename = "p")]
        provider: T,
        /// The summary, in parts.
        #[serde(rename = "s", default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
        summary: Vec<T>,
        /// The provider's encrypted form.
        #[serde(rename = "e")]
        sealed: T,
    },
    /// An item of which models read nothing.
    #[serde(rename = "n")]
    Hidden,
    /// An item of another kind. Models get its JSON.
    #[serde(rename = "o")]
    Other(J),
}

/// Who wrote a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// The user.
    #[serde(rename = "u")]
    User,
    /// The model.
    #[serde(rename = "a")]
    Assistant,
    /// The operator of the application, under the older name.
    #[serde(rename = "s")]
    System,
    /// The operator of the application.
    #[serde(rename = "d")]
    Developer,
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content<T, J> {
    /// One text.
    #[serde(rename = "t")]
    Text(T),
    /// A list of parts.
    #[serde(rename = "p")]
    Parts(Vec<Part<T, J>>),
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part<T, J> {
    /// A text.
    #[serde(rename = "t")]
    Text(T),
    /// Anything else.
    #[serde(rename = "a")]
    Attachment {
        /// What it is.
        #[serde(rename = "m")]
        media: Media<T>,
        /// The part as the client sent it, for a provider with the same format.
        #[serde(rename = "j")]
        json: J,
    },
}

/// What an attachment is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Media<T> {
    /// An image.
    #[serde(rename = "i")]
    Image {
        /// Its address, which may contain the image.
        #[serde(rename = "u", skip_serializing_if = "Option::is_none")]
        url: Option<T>,
        /// How closely the model should look at it.
        #[serde(rename = "d", skip_serializing_if = "Option::is_none")]
        detail: Option<T>,
    },
    /// A file.
    #[serde(rename = "f")]
    File {
        /// The content, as an address that contains it.
        #[serde(rename = "d", skip_serializing_if = "Option::is_none")]
        data: Option<T>,
        /// The address.
        #[serde(rename = "u", skip_serializing_if = "Option::is_none")]
        url: Option<T>,
        /// The provider's id of the file.
        #[serde(rename = "i", skip_serializing_if = "Option::is_none")]
        id: Option<T>,
        /// The name.
        #[serde(rename = "n", skip_serializing_if = "Option::is_none")]
        name: Option<T>,
    },
    /// The text by which a model refused to answer.
    #[serde(rename = "r")]
    Refusal(T),
    /// Something else.
    #[serde(rename = "o")]
    Other,
}

/// The arguments of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Arguments<T> {
    /// JSON, which may be invalid.
    #[serde(rename = "j")]
    Json(T),
    /// A text for a tool with free-text input. Models are offered such a tool with the text as the one argument of this name.
    #[serde(rename = "t")]
    Text(String, T),
}

/// The output of a call that the client made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output<T, J> {
    /// Texts, which models read line by line.
    #[serde(rename = "t")]
    Texts(Vec<T>),
    /// Anything else.
    #[serde(rename = "j")]
    Json(J),
}

/// The result of a call that a server made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome<T> {
    /// It gave an output.
    #[serde(rename = "o")]
    Output(T),
    /// It failed.
    #[serde(rename = "e")]
    Error(T),
}

impl ItemHeader {
    /// Whether the item is a message of one text. Its header is not stored: that would cost more than reading the message again.
    pub fn is_plain_message(&self) -> bool {
        match self {
            ItemHeader::Message { content: Content::Text(_), .. } => true,
            ItemHeader::Message { content: Content::Parts(parts), .. } => matches!(parts.as_slice(), [Part::Text(_)]),
            ItemHeader::Call { .. }
            | ItemHeader::Result { .. }
            | ItemHeader::ServerCall { .. }
            | ItemHeader::Reasoning { .. }
            | ItemHeader::Hidden
            | ItemHeader::Other(_) => false,
        }
    }

    /// Reads the texts and the JSON of an item. `None` if the header does not fit the content.
    pub fn read(&self, content: &[u8]) -> Option<ItemHeader<String, Value>> {
        let text = |span: &Span| span.text(content);
        let maybe = |span: &Option<Span>| span.as_ref().map_or(Some(None), |span| text(span).map(Some));
        let all = |spans: &[Span]| spans.iter().map(text).collect::<Option<Vec<String>>>();
        Some(match self {
            ItemHeader::Message { role, content: Content::Text(span) } => {
                ItemHeader::Message { role: *role, content: Content::Text(text(span)?) }
            }
            ItemHeader::Message { role, content: Content::Parts(parts) } => {
                let parts = parts.iter().map(|part| part.read(content)).collect::<Option<_>>()?;
                ItemHeader::Message { role: *role, content: Content::Parts(parts) }
            }
            ItemHeader::Call { id, tool, arguments } => {
                let arguments = match arguments {
                    None => None,
                    Some(Arguments::Json(span)) => Some(Arguments::Json(text(span)?)),
                    Some(Arguments::Text(name, span)) => Some(Arguments::Text(name.clone(), text(span)?)),
                };
                ItemHeader::Call { id: text(id)?, tool: text(tool)?, arguments }
            }
            ItemHeader::Result { call, output, item } => {
                let output = match output {
                    Output::Texts(texts) => Output::Texts(all(texts)?),
                    Output::Json(span) => Output::Json(span.json(content)?),
                };
                ItemHeader::Result { call: text(call)?, output, item: item.json(content)? }
            }
            ItemHeader::ServerCall { id, server, tool, arguments, outcome } => {
                let outcome = match outcome {
                    None => None,
                    Some(Outcome::Output(span)) => Some(Outcome::Output(text(span)?)),
                    Some(Outcome::Error(span)) => Some(Outcome::Error(text(span)?)),
                };
                ItemHeader::ServerCall { id: text(id)?, server: maybe(server)?, tool: maybe(tool)?, arguments: maybe(arguments)?, outcome }
            }
            ItemHeader::Reasoning { provider, summary, sealed } => {
                ItemHeader::Reasoning { provider: text(provider)?, summary: all(summary)?, sealed: text(sealed)? }
            }
            ItemHeader::Hidden => ItemHeader::Hidden,
            ItemHeader::Other(span) => ItemHeader::Other(span.json(content)?),
        })
    }
}

impl Part<Span, Span> {
    fn read(&self, content: &[u8]) -> Option<Part<String, Value>> {
        let maybe = |span: &Option<Span>| span.as_ref().map_or(Some(None), |span| span.text(content).map(Some));
        Some(match self {
            Part::Text(span) => Part::Text(span.text(content)?),
            Part::Attachment { media, json } => {
                let media = match media {
                    Media::Image { url, detail } => Media::Image { url: maybe(url)?, detail: maybe(detail)? },
                    Media::File { data, url, id, name } => {
                        Media::File { data: maybe(data)?, url: maybe(url)?, id: maybe(id)?, name: maybe(name)? }
                    }
                    Media::Refusal(span) => Media::Refusal(span.text(content)?),
                    Media::Other => Media::Other,
                };
                Part::Attachment { media, json: json.json(content)? }
            }
        })
    }
}

impl Content<String, Value> {
    /// The text of each part, or `None` if there are parts other than text.
    pub fn texts(&self) -> Option<Vec<&str>> {
        match self {
            Content::Text(text) => Some(vec![text]),
            Content::Parts(parts) => {
                parts.iter().map(|part| if let Part::Text(text) = part { Some(text.as_str()) } else { None }).collect()
            }
        }
    }
}

impl Span {
    fn slice(self, content: &[u8]) -> Option<&str> {
        let (start, length) = (self.0 as usize, self.1 as usize);
        std::str::from_utf8(content.get(start..start.checked_add(length)?)?).ok()
    }

    fn text(self, content: &[u8]) -> Option<String> {
        let inside = self.slice(content)?;
        // Only a backslash makes a JSON string differ from its text.
        if inside.contains('\\') { decoded(&format!("\"{inside}\"")) } else { Some(inside.to_owned()) }
    }

    fn json(self, content: &[u8]) -> Option<Value> {
        decoded(self.slice(content)?)
    }
}

fn decoded<T: DeserializeOwned>(json: &str) -> Option<T> {
    serde_json::from_str(json).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_from_the_content_and_a_header_that_does_not_fit_is_no_header() {
        let content = br#"{"item":{"text":"a\nb","other":"c:d"}}"#;
        let message = |span| ItemHeader::Message { role: Role::User, content: Content::Text(span) };
        let read = |start, length| match message(Span(start, length)).read(content) {
            Some(ItemHeader::Message { content: Content::Text(text), .. }) => Some(text),
            _ => None,
        };
        assert_eq!(read(17, 4).as_deref(), Some("a\nb"));
        assert_eq!((read(32, 1).as_deref(), read(34, 1).as_deref()), (Some("c"), Some("d")));
        assert_eq!((read(17, 2), read(30, 1_000), read(u32::MAX, u32::MAX)), (None, None, None));
        let whole = ItemHeader::Other(Span(0, content.len() as u32)).read(content);
        assert_eq!(whole, Some(ItemHeader::Other(serde_json::from_slice(content).unwrap())));
    }

    #[test]
    fn a_stored_header_is_short_and_is_read_back() {
        let header: ItemHeader = ItemHeader::Result { call: Span(40, 3), output: Output::Texts(vec![Span(55, 2)]), item: Span(8, 60) };
        let stored = serde_json::to_string(&header).unwrap();
        assert_eq!(stored, r#"{"r":{"c":[40,3],"o":{"t":[[55,2]]},"j":[8,60]}}"#);
        assert_eq!(serde_json::from_str::<ItemHeader>(&stored).unwrap(), header);
    }
}
