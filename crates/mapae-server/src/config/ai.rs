//! Who is asked for what a model can say.

use std::collections::BTreeMap;

use super::resolve::{Reader, counted, is_http};
use super::secret::{Address, Secret};
use super::{Provider, ProviderSettings, Shape, key, value};

/// Providers, and bytes of a provider's name: it is a label of metrics.
const PROVIDERS_MAX: usize = 20;
const NAME_BYTES_MAX: usize = 32;

impl Reader<'_> {
    pub(super) fn providers(&mut self) -> Vec<Provider> {
        let mut known = BTreeMap::new();
        for name in self.settings.names_below("ai.provider") {
            let at = |key: &str| ["ai", "provider", name, key].map(str::to_owned).to_vec();
            let needed = ["url", "model"].map(at);
            let absent: Vec<_> = needed.iter().filter(|path| self.settings.get(path).is_none()).collect();
            if !absent.is_empty() {
                absent.into_iter().for_each(|path| self.missing(path));
                continue;
            }
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            let url = self.secret(at("url"));
            let named = name.len() <= NAME_BYTES_MAX && name.chars().all(plain) && name != "local";
            if !named || url.as_ref().is_some_and(|url| !is_http(url)) {
                self.bad(&at("url"), None);
                continue;
            }
            let has_key = self.settings.get(&at("key")).is_some();
            let key = has_key.then(|| self.secret(at("key"))).flatten().map(|key| Secret::new(key.trim()));
            let model = self.optional(at("model"), value::text);
            let timeout =
                self.at(at("timeout"), |value| value::duration(value).filter(|time| !time.is_zero()));
            let redact = self.at(at("redact"), toml::Value::as_bool);
            let shape = self.at(at("schema"), |value| match value.as_str()? {
                "strict" => Some(Shape::Strict),
                "object" => Some(Shape::Object),
                "prompt" => Some(Shape::Prompt),
                _ => None,
            });
            let answer_tokens = self.at(at("answer_tokens"), |value| counted(value, 64, 65_536)) as u64;
            let Some((url, model)) = url.zip(model) else { continue };
            let url = Address::new(url);
            let name = name.to_owned();
            let settings = ProviderSettings {
                name: name.clone(),
                url,
                key,
                model,
                timeout,
                redact,
                shape,
                answer_tokens,
            };
            known.insert(name, settings);
        }
        let names: Vec<String> = self.read("ai.providers", value::list);
        let mut providers = Vec::new();
        for (at, name) in names.iter().enumerate() {
            match known.get(name) {
                _ if names[..at].contains(name) || at >= PROVIDERS_MAX => {}
                _ if name == "local" => providers.push(Provider::Local),
                Some(settings) => providers.push(Provider::Remote(settings.clone())),
                None => {}
            }
        }
        if providers.len() != names.len() || providers.is_empty() {
            self.bad(&key::parse("ai.providers"), None);
        }
        providers
    }
}
