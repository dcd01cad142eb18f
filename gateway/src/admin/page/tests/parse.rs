//! A reader of markup that takes nothing for granted: what it accepts every browser reads alike.

/// An element, or the document.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    tag: String,
    attributes: Vec<(String, String)>,
    children: Vec<Child>,
}

#[derive(Clone, Debug)]
enum Child {
    Element(Node),
    Text(String),
}

/// Reads `html`; panics where an element is not closed in order, an attribute is not quoted or
/// comes twice, a character that needs escaping is not escaped, or an id comes twice.
#[track_caller]
pub(super) fn parsed(html: &str) -> Node {
    let rest = html.strip_prefix("<!doctype html>\n").unwrap();
    let mut stack = vec![Node::default()];
    let mut rest = rest;
    while !rest.is_empty() {
        let Some(after) = rest.strip_prefix('<') else {
            let end = rest.find('<').unwrap_or(rest.len());
            let text = unescaped(&rest[..end]);
            stack.last_mut().unwrap().children.push(Child::Text(text));
            rest = &rest[end..];
            continue;
        };
        let end = end_of_tag(after);
        let tag = &after[..end];
        rest = &after[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            let closed = stack.pop().unwrap();
            assert_eq!(closed.tag, name, "closed out of order");
            stack.last_mut().unwrap().children.push(Child::Element(closed));
        } else if let Some(tag) = tag.strip_suffix('/') {
            let element = opened(tag);
            stack.last_mut().unwrap().children.push(Child::Element(element));
        } else {
            stack.push(opened(tag));
        }
    }
    assert_eq!(stack.len(), 1, "{} is not closed", stack.last().unwrap().tag);
    let document = stack.pop().unwrap();
    let mut ids: Vec<&str> =
        document.everything().iter().filter_map(|node| node.attribute("id")).collect();
    ids.sort_unstable();
    assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
    document
}

/// Where the tag ends; `>` in a value does not end it.
fn end_of_tag(text: &str) -> usize {
    let mut quoted = false;
    text.char_indices()
        .find(|(_, c)| {
            quoted ^= *c == '"';
            *c == '>' && !quoted
        })
        .unwrap()
        .0
}

fn opened(tag: &str) -> Node {
    let (name, mut rest) = tag.split_at(tag.find(' ').unwrap_or(tag.len()));
    assert!(!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{tag}");
    let mut attributes: Vec<(String, String)> = Vec::new();
    while let Some(attribute) = rest.strip_prefix(' ') {
        let (name, after) = attribute.split_once("=\"").unwrap();
        let (value, after) = after.split_once('"').unwrap();
        let plain = name.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-');
        assert!(plain && !name.is_empty(), "{name}");
        assert!(attributes.iter().all(|(known, _)| known != name), "{name} comes twice in {tag}");
        attributes.push((name.to_owned(), unescaped(value)));
        rest = after;
    }
    assert!(rest.is_empty(), "{rest} in {tag}");
    Node { tag: name.to_owned(), attributes, children: Vec::new() }
}

fn unescaped(text: &str) -> String {
    assert!(!text.contains(['<', '>', '"', '\'']), "{text}");
    let entities = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")];
    for (at, _) in text.match_indices('&') {
        assert!(entities.iter().any(|(entity, _)| text[at..].starts_with(entity)), "{text}");
    }
    entities.iter().fold(text.to_owned(), |text, (entity, c)| text.replace(entity, c))
}

impl Node {
    pub(super) fn tag(&self) -> &str {
        &self.tag
    }

    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    pub(super) fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.attributes.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Every element inside, in the order of the document.
    pub(super) fn everything(&self) -> Vec<&Self> {
        let mut found = Vec::new();
        for child in &self.children {
            if let Child::Element(element) = child {
                found.push(element);
                found.extend(element.everything());
            }
        }
        found
    }

    /// Elements right below.
    pub(super) fn children_of(&self, tag: &str) -> Vec<&Self> {
        self.children
            .iter()
            .filter_map(|child| match child {
                Child::Element(element) => Some(element),
                Child::Text(_) => None,
            })
            .filter(|element| element.tag == tag)
            .collect()
    }

    pub(super) fn all(&self, tag: &str) -> Vec<&Self> {
        self.everything().into_iter().filter(|node| node.tag == tag).collect()
    }

    /// The one element of this name.
    #[track_caller]
    pub(super) fn only(&self, tag: &str) -> Self {
        let found = self.all(tag);
        assert_eq!(found.len(), 1, "{tag}");
        found[0].clone()
    }

    pub(super) fn every_with_class(&self, class: &str) -> Vec<&Self> {
        let has = |node: &&Self| {
            node.attribute("class").is_some_and(|value| value.split(' ').any(|one| one == class))
        };
        self.everything().into_iter().filter(has).collect()
    }

    /// The first element of this class.
    #[track_caller]
    pub(super) fn with_class(&self, class: &str) -> Self {
        (*self.every_with_class(class).first().unwrap()).clone()
    }

    #[track_caller]
    pub(super) fn by_id(&self, id: &str) -> Self {
        let found = self.everything().into_iter().find(|node| node.attribute("id") == Some(id));
        found.unwrap().clone()
    }

    /// All text inside.
    pub(super) fn text(&self) -> String {
        self.texts().concat()
    }

    /// All text inside, its pieces apart.
    pub(super) fn spaced(&self) -> String {
        self.texts().join(" ")
    }

    fn texts(&self) -> Vec<String> {
        let mut texts = Vec::new();
        for child in &self.children {
            match child {
                Child::Text(text) => texts.push(text.clone()),
                Child::Element(element) => texts.extend(element.texts()),
            }
        }
        texts
    }

    /// Elements and the names of their attributes, without any text.
    pub(super) fn shape(&self) -> String {
        let names: Vec<&str> = self.attributes.iter().map(|(name, _)| &**name).collect();
        let inside: String = self
            .children
            .iter()
            .map(|child| match child {
                Child::Element(element) => element.shape(),
                Child::Text(_) => String::new(),
            })
            .collect();
        format!("{}[{}]({inside})", self.tag, names.join(" "))
    }
}
