//! XML of a document to a tree that is walked by local names, whatever prefixes its writer chose.
//!
//! Markup that breaks off or does not match is taken as far as it goes: what comes before the break is worth
//! having, and [`Tree::broken`] says so. Entities that a document type declares are not known here, so none can
//! grow.

use std::borrow::Cow;

use quick_xml::Reader;
use quick_xml::XmlVersion;
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::{BytesStart, Event};

use crate::error::{DocumentError, Excess};

/// Elements and pieces of text of one part; a report of a thousand pages has a million.
const NODES_MAX: usize = 4_000_000;
/// Elements inside of each other. Deeper ones are no honest document's.
const DEPTH_MAX: usize = 512;

/// A part of a document.
pub(crate) struct Tree<'x> {
    nodes: Vec<Node<'x>>,
    broken: bool,
}

struct Node<'x> {
    what: What<'x>,
    /// The node after all that is inside of this one.
    end: u32,
}

enum What<'x> {
    Element(BytesStart<'x>),
    Text(Cow<'x, str>),
}

/// Bytes of a part as text: UTF-8, or UTF-16 with its mark.
pub(crate) fn text_of(bytes: Vec<u8>) -> String {
    match bytes.as_slice() {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => crate::sheet::text::decode(&bytes).0,
        _ => String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
    }
}

impl<'x> Tree<'x> {
    pub(crate) fn parse(xml: &'x str) -> Result<Self, DocumentError> {
        let mut reader = Reader::from_str(xml);
        // Ends are matched by depth alone.
        reader.config_mut().check_end_names = false;
        reader.config_mut().allow_unmatched_ends = true;
        let mut tree = Self { nodes: Vec::new(), broken: false };
        let mut open: Vec<usize> = Vec::new();
        loop {
            if tree.nodes.len() >= NODES_MAX {
                return Err(DocumentError::TooLarge(Excess::Unpacked));
            }
            match reader.read_event() {
                Ok(Event::Start(start)) => {
                    if open.len() >= DEPTH_MAX {
                        return Err(DocumentError::Damaged);
                    }
                    open.push(tree.nodes.len());
                    tree.push(What::Element(start));
                }
                Ok(Event::Empty(start)) => tree.push(What::Element(start)),
                Ok(Event::End(_)) => {
                    if let Some(at) = open.pop() {
                        tree.nodes[at].end = tree.nodes.len() as u32;
                    }
                }
                Ok(Event::Text(text)) => tree.push(What::Text(text.into_inner())),
                Ok(Event::CData(text)) => tree.push(What::Text(text.into_inner())),
                Ok(Event::GeneralRef(entity)) => {
                    if let Some(known) = resolve_xml_entity(&entity) {
                        tree.push(What::Text(Cow::Borrowed(known)));
                    } else if let Ok(Some(c)) = entity.resolve_char_ref() {
                        tree.push(What::Text(Cow::Owned(c.to_string())));
                    }
                }
                Ok(Event::Eof) => break,
                Ok(_) => {}
                Err(_) => {
                    tree.broken = true;
                    break;
                }
            }
        }
        tree.broken |= !open.is_empty();
        for at in open {
            tree.nodes[at].end = tree.nodes.len() as u32;
        }
        Ok(tree)
    }

    fn push(&mut self, what: What<'x>) {
        let end = self.nodes.len() as u32 + 1;
        self.nodes.push(Node { what, end });
    }

    /// Whether the markup broke off.
    pub(crate) fn broken(&self) -> bool {
        self.broken
    }

    pub(crate) fn root(&self) -> Option<Element<'_, 'x>> {
        let elements = (0..self.nodes.len()).map(|at| Element { tree: self, at });
        elements.into_iter().find(|element| element.start().is_some())
    }
}

/// An element of a tree.
#[derive(Clone, Copy)]
pub(crate) struct Element<'t, 'x> {
    tree: &'t Tree<'x>,
    at: usize,
}

/// What stands in an element.
pub(crate) enum Child<'t, 'x> {
    Element(Element<'t, 'x>),
    Text(&'t str),
}

impl<'t, 'x> Element<'t, 'x> {
    fn start(&self) -> Option<&'t BytesStart<'x>> {
        match &self.tree.nodes[self.at].what {
            What::Element(start) => Some(start),
            What::Text(_) => None,
        }
    }

    /// Its name without a prefix.
    pub(crate) fn name(&self) -> &'t str {
        let name = self.start().map_or("", |start| start.name().into_inner());
        name.rsplit_once(':').map_or(name, |(_, local)| local)
    }

    /// An attribute by its name without a prefix.
    pub(crate) fn attribute(&self, name: &str) -> Option<String> {
        let mut attributes = self.start()?.attributes();
        let mut found = attributes.with_checks(false).flatten().filter(|a| {
            let key = a.key.into_inner();
            key == name || key.rsplit_once(':').is_some_and(|(_, local)| local == name)
        });
        found.next()?.normalized_value(XmlVersion::Implicit1_0).ok().map(Cow::into_owned)
    }

    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        self.attribute(name)?.trim().parse().ok()
    }

    pub(crate) fn children(&self) -> impl Iterator<Item = Child<'t, 'x>> + use<'t, 'x> {
        let (tree, end) = (self.tree, self.tree.nodes[self.at].end as usize);
        let mut at = self.at + 1;
        std::iter::from_fn(move || {
            let node = (at < end).then(|| &tree.nodes[at])?;
            let child = match &node.what {
                What::Element(_) => Child::Element(Element { tree, at }),
                What::Text(text) => Child::Text(text),
            };
            at = node.end as usize;
            Some(child)
        })
    }

    pub(crate) fn elements(&self) -> impl Iterator<Item = Element<'t, 'x>> + use<'t, 'x> {
        self.children().filter_map(|child| match child {
            Child::Element(element) => Some(element),
            Child::Text(_) => None,
        })
    }

    pub(crate) fn child(&self, name: &str) -> Option<Element<'t, 'x>> {
        self.elements().find(|element| element.name() == name)
    }

    /// The first element of this name anywhere inside.
    pub(crate) fn descendant(&self, name: &str) -> Option<Element<'t, 'x>> {
        self.descendants().find(|element| element.name() == name)
    }

    /// Every element inside, in the order of their starts.
    pub(crate) fn descendants(&self) -> impl Iterator<Item = Element<'t, 'x>> + use<'t, 'x> {
        let (tree, end) = (self.tree, self.tree.nodes[self.at].end as usize);
        let all = (self.at + 1..end).map(move |at| Element { tree, at });
        all.filter(|element| element.start().is_some())
    }

    /// All text inside.
    pub(crate) fn text(&self) -> String {
        let nodes = &self.tree.nodes[self.at..self.tree.nodes[self.at].end as usize];
        nodes
            .iter()
            .filter_map(|node| match &node.what {
                What::Text(text) => Some(&**text),
                What::Element(_) => None,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_attributes_need_no_prefix() {
        let tree = Tree::parse("<?xml version='1.0'?><w:a x:n='7'>one &amp; <b/>&#44032;</w:a>").unwrap();
        let root = tree.root().unwrap();
        assert_eq!((root.name(), root.number("n"), root.text().as_str()), ("a", Some(7), "one & 가"));
        assert!(!tree.broken());
    }

    #[test]
    fn what_breaks_off_is_taken_as_far_as_it_goes() {
        let tree = Tree::parse("<a><b>one</b><c>two").unwrap();
        assert!(tree.broken());
        let texts: Vec<String> = tree.root().unwrap().elements().map(|e| e.text()).collect();
        assert_eq!(texts, ["one", "two"]);
    }

    #[test]
    fn nesting_without_end_is_damage() {
        let deep = "<a>".repeat(100_000);
        assert_eq!(Tree::parse(&deep).err(), Some(DocumentError::Damaged));
    }
}
