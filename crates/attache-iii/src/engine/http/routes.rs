//! The routes of HTTP triggers, as a tree of path segments.
//!
//! A segment `:name` matches any one segment. A literal segment has precedence over it. The time of a lookup depends on the
//! length of the path, and on the number of routes that match its beginning.

use std::collections::HashMap;
use std::sync::Arc;

use http::Method;
use serde::Deserialize;

use crate::engine::triggers::{NewTrigger, Trigger};

/// The largest number of segments of a path.
const MAX_SEGMENTS: usize = 64;

/// How many segments a lookup compares at most. Where routes have both a literal and a parameter, it tries both.
const MAX_TRIED: usize = 10_000;

/// The settings of an HTTP trigger.
#[derive(Debug)]
pub(crate) struct HttpTriggerConfig {
    /// The path as the worker wrote it.
    pub(super) path: String,
    pub(super) method: Method,
    pub(super) condition: Option<String>,
    pub(super) middleware: Vec<String>,
}

impl HttpTriggerConfig {
    /// Parses the settings of a trigger.
    pub(crate) fn read(trigger: &NewTrigger) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Config {
            api_path: Option<String>,
            http_method: Option<String>,
            condition_function_id: Option<String>,
            middleware_function_ids: Option<Vec<String>>,
        }
        if trigger.config.is_null() {
            return Err("api_path is required for http triggers".to_owned());
        }
        let config: Config =
            serde_json::from_value(trigger.config.clone()).map_err(|error| error.to_string())?;
        let path = config.api_path.ok_or("api_path is required for http triggers")?;
        if path.len() > 2048 || path.chars().any(|c| c.is_control() || c.is_whitespace() || "?#".contains(c))
        {
            return Err(format!("`{}` is not a path", path.escape_debug()));
        }
        if segments(&path).count() > MAX_SEGMENTS {
            return Err(format!("a path may have at most {MAX_SEGMENTS} segments"));
        }
        let method = config.http_method.unwrap_or_else(|| "GET".to_owned()).to_ascii_uppercase();
        let known = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"];
        if !known.contains(&method.as_str()) {
            return Err(format!(
                "`{method}` is not a method of http triggers: expected one of {}",
                known.join(", ")
            ));
        }
        Ok(Self {
            path,
            method: method.parse().map_err(|_| "invalid method".to_owned())?,
            condition: config.condition_function_id,
            middleware: config.middleware_function_ids.unwrap_or_default(),
        })
    }
}

/// The route of an HTTP trigger.
pub(crate) struct Route {
    pub(super) config: Arc<HttpTriggerConfig>,
    pub(super) trigger: Arc<Trigger>,
}

/// The result of a lookup.
pub(super) struct RouteMatch {
    /// The methods of all routes at the path.
    pub(super) methods: Vec<Method>,
    /// The route for the method of the request.
    pub(super) route: Option<Arc<Route>>,
    /// The parameters of the path, as they were sent.
    pub(super) params: Vec<(String, String)>,
}

#[derive(Default)]
pub(crate) struct Routes {
    root: Node,
    /// Reserved paths, as segments: exact paths, and paths that include everything below.
    reserved: Vec<Vec<String>>,
    reserved_below: Vec<Vec<String>>,
}

#[derive(Default)]
struct Node {
    literals: HashMap<Box<str>, Self>,
    param: Option<(String, Box<Self>)>,
    routes: Vec<Arc<Route>>,
}

fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|segment| !segment.is_empty())
}

fn param(segment: &str) -> Option<&str> {
    segment.strip_prefix(':').filter(|name| !name.is_empty())
}

impl Routes {
    /// Reserves a path.
    pub(crate) fn reserve(&mut self, path: &str) {
        self.reserved.push(segments(path).map(str::to_owned).collect());
    }

    /// Reserves a path and everything below it.
    pub(crate) fn reserve_below(&mut self, path: &str) {
        self.reserved_below.push(segments(path).map(str::to_owned).collect());
    }

    pub(crate) fn add(
        &mut self,
        config: &Arc<HttpTriggerConfig>,
        trigger: &Arc<Trigger>,
    ) -> Result<(), String> {
        let HttpTriggerConfig { path, method, .. } = &**config;
        let own: Vec<&str> = segments(path).collect();
        let same = self.reserved.iter().find(|other| **other == own);
        let is_above = |other: &&Vec<String>| own.len() >= other.len() && own[..other.len()] == ***other;
        if let Some(reserved) = same.or_else(|| self.reserved_below.iter().find(is_above)) {
            let reserved = format!("/{}", reserved.join("/"));
            tracing::warn!(
                path,
                reserved,
                function = %trigger.function,
                "an HTTP trigger has a path of the A2A server and was rejected"
            );
            return Err(format!(
                "the path `{path}` belongs to the A2A server, which has `{reserved}`: choose another one"
            ));
        }
        // All checks come first, so that a rejected route changes nothing.
        let mut node = Some(&self.root);
        for segment in &own {
            node = match (param(segment), node) {
                (None, Some(node)) => node.literals.get(*segment),
                (Some(name), Some(node)) => match &node.param {
                    Some((other, _)) if other != name => {
                        return Err(format!(
                            "the path `{path}` has the parameter `:{name}` where another route has `:{other}`"
                        ));
                    }
                    Some((_, next)) => Some(&**next),
                    None => None,
                },
                (_, None) => None,
            };
        }
        if node.is_some_and(|node| node.routes.iter().any(|route| route.config.method == *method)) {
            return Err(format!("`{method} {path}` has a trigger already"));
        }
        let mut node = &mut self.root;
        for segment in own {
            node = match param(segment) {
                Some(name) => &mut node.param.get_or_insert_with(|| (name.to_owned(), Box::default())).1,
                None => node.literals.entry(segment.into()).or_default(),
            };
        }
        node.routes.push(Arc::new(Route { config: config.clone(), trigger: trigger.clone() }));
        Ok(())
    }

    pub(crate) fn remove(&mut self, config: &HttpTriggerConfig, trigger: &str) {
        let own: Vec<&str> = segments(&config.path).collect();
        self.root.remove(&own, trigger);
    }

    pub(super) fn find(&self, path: &str, method: &Method) -> Option<RouteMatch> {
        let path: Vec<&str> = segments(path).take(MAX_SEGMENTS + 1).collect();
        let mut params = Vec::new();
        let mut left = MAX_TRIED;
        let node = self.root.find(&path, &mut params, &mut left)?;
        let of = |method: &Method| node.routes.iter().find(|route| route.config.method == *method).cloned();
        let route = of(method).or_else(|| if *method == Method::HEAD { of(&Method::GET) } else { None });
        let methods = node.routes.iter().map(|route| route.config.method.clone()).collect();
        Some(RouteMatch { methods, route, params })
    }
}

impl Node {
    fn is_empty(&self) -> bool {
        self.routes.is_empty() && self.literals.is_empty() && self.param.is_none()
    }

    /// Finds the node of a path. Returns `None` after `left` comparisons.
    fn find(&self, path: &[&str], params: &mut Vec<(String, String)>, left: &mut usize) -> Option<&Self> {
        *left = left.checked_sub(1)?;
        let Some((first, rest)) = path.split_first() else {
            return (!self.routes.is_empty()).then_some(self);
        };
        if let Some(matched) = self.literals.get(*first).and_then(|node| node.find(rest, params, left)) {
            return Some(matched);
        }
        let (name, node) = self.param.as_ref()?;
        params.push((name.clone(), (*first).to_owned()));
        let matched = node.find(rest, params, left);
        if matched.is_none() {
            params.pop();
        }
        matched
    }

    fn remove(&mut self, path: &[&str], trigger: &str) {
        let Some((first, rest)) = path.split_first() else {
            self.routes.retain(|route| route.trigger.id != trigger);
            return;
        };
        if param(first).is_some() {
            let Some((_, node)) = &mut self.param else { return };
            node.remove(rest, trigger);
            if node.is_empty() {
                self.param = None;
            }
        } else if let Some(node) = self.literals.get_mut(*first) {
            node.remove(rest, trigger);
            if node.is_empty() {
                self.literals.remove(*first);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree in which each of so many segments is both a literal `s` and a parameter. Only the path of parameters has a node `end`.
    fn tree(depth: usize) -> Node {
        let mut node = Node::default();
        if depth == 0 {
            node.literals
                .insert("end".into(), Node { literals: HashMap::new(), param: None, routes: Vec::new() });
            return node;
        }
        node.literals.insert("s".into(), tree(depth - 1));
        node.param = Some(("p".to_owned(), Box::new(tree(depth - 1))));
        node
    }

    #[test]
    fn a_lookup_ends_after_10_000_comparisons() {
        assert_eq!(MAX_TRIED, 10_000);
        // No node has a route, so all of them are compared: 2 ^ (depth + 1) - 1, and the one behind each of the last.
        let (tree, path) = (tree(4), ["s", "s", "s", "s", "end"]);
        let all = 31 + 16;
        let left = |tried: usize| {
            let mut left = tried;
            assert!(tree.find(&path, &mut Vec::new(), &mut left).is_none());
            left
        };
        assert_eq!([left(all), left(all + 1)], [0, 1]);
        // One comparison less, and the last node is not reached.
        assert_eq!(left(all - 1), 0);
    }
}
