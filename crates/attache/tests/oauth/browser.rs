//! A user with a browser, who fills in every form.

use std::collections::BTreeMap;

use reqwest::redirect::Policy;
use reqwest::{Method, Response, Url};

/// What they say when they are asked whether an agent may act for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consent {
    Give,
    Refuse,
}

/// Opens a page as a person of this name and fills in forms until there are none. What stands on the last page comes back.
pub(crate) async fn visit(url: &str, name: &str, consent: Consent) -> String {
    let client = reqwest::Client::builder().redirect(Policy::none()).build().expect("a client");
    let mut browser = Browser { client, cookies: BTreeMap::new() };
    let mut page = browser.open(Method::GET, url.parse().expect("a URL"), None).await;
    loop {
        let Some(form) = Form::on(&page) else { return page };
        let asked = form.fields.iter().any(|(name, value)| name == "prompt" && value == "consent");
        page = if asked && consent == Consent::Refuse {
            let abort = format!("{}/abort", form.action);
            browser.open(Method::GET, abort.parse().expect("a URL"), None).await
        } else {
            let filled = form.filled(name);
            browser.open(Method::POST, form.action.parse().expect("a URL"), Some(filled)).await
        };
    }
}

struct Browser {
    client: reqwest::Client,
    cookies: BTreeMap<String, String>,
}

impl Browser {
    /// What is at an address, wherever it is redirected to.
    async fn open(&mut self, method: Method, url: Url, form: Option<String>) -> String {
        let mut next = self.send(method, &url, form).await;
        let mut url = url;
        while let Some(to) = next.headers().get("location") {
            url = url.join(to.to_str().expect("it is a text")).expect("it is a URL");
            next = self.send(Method::GET, &url, None).await;
        }
        next.text().await.expect("it says everything")
    }

    async fn send(&mut self, method: Method, url: &Url, form: Option<String>) -> Response {
        let cookies: Vec<_> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut request = self.client.request(method, url.clone()).header("cookie", cookies.join("; "));
        if let Some(form) = form {
            request = request.header("content-type", "application/x-www-form-urlencoded").body(form);
        }
        let response = request.send().await.expect("it answers");
        for cookie in response.headers().get_all("set-cookie") {
            let cookie = cookie.to_str().expect("it is a text").split(';').next().unwrap_or_default();
            let (name, value) = cookie.split_once('=').expect("a cookie has a name");
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
        response
    }
}

struct Form {
    action: String,
    fields: Vec<(String, String)>,
}

impl Form {
    /// The form on a page, if there is one.
    fn on(page: &str) -> Option<Self> {
        let form = &page[page.find("<form")?..];
        let action = attribute(form, "action")?;
        let inputs = form.split("<input").skip(1);
        let fields = inputs.filter_map(|input| {
            let input = &input[..input.find('>')?];
            Some((attribute(input, "name")?, attribute(input, "value").unwrap_or_default()))
        });
        Some(Self { action, fields: fields.collect() })
    }

    /// The form as this person fills it in.
    fn filled(&self, name: &str) -> String {
        let fields = self.fields.iter().map(|(field, value)| match field.as_str() {
            "login" => format!("login={name}"),
            "password" => "password=anything".to_owned(),
            field => format!("{field}={value}"),
        });
        fields.collect::<Vec<_>>().join("&")
    }
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let value = tag.split_once(&format!("{name}=\""))?.1;
    Some(value[..value.find('"')?].to_owned())
}
