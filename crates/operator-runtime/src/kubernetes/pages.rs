//! Lists in pages with a limit in bytes. The API server limits only the number of objects, and a tenant's object may have
//! 1.5 MB: a page of 200 such claims would not fit into the operator's memory.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

use http::request::Parts;
use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use kube::Client;
use kube::client::Body;
use tower::BoxError;

/// Longest page of more than one object, in bytes: some 600 claims of ordinary size.
const PAGE_BYTES: usize = 2 << 20;

/// Wraps `client`: if a page of a list is too long, it asks for fewer objects. The rest is in the next page, because each
/// page has the token with which the next begins.
pub fn bounded(client: Client) -> Client {
    let (namespace, valid_until) = (client.default_namespace().to_owned(), *client.valid_until());
    let sizes = Arc::new(Sizes::default());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, sizes) = (client.clone(), Arc::clone(&sizes));
        async move {
            match Page::of(&request) {
                Some(page) => page.get(&client, &request.into_parts().0, &sizes).await,
                None => client.send(request).await.map_err(BoxError::from),
            }
        }
    });
    Client::new::<_, Body, _>(service, namespace).with_valid_until(valid_until)
}

/// How many objects fit into a page, by path, as far as known.
#[derive(Default)]
struct Sizes(Mutex<HashMap<String, u32>>);

impl Sizes {
    fn get(&self, path: &str) -> Option<u32> {
        self.0.lock().get(path).copied()
    }

    fn set(&self, path: &str, size: u32) {
        self.0.lock().insert(path.to_owned(), size);
    }
}

/// A page of a list.
struct Page {
    path: String,
    /// The query without the limit.
    rest: String,
    /// How many objects are asked for.
    wanted: u32,
}

impl Page {
    /// `None` if the request is not for a page.
    fn of(request: &Request<Body>) -> Option<Self> {
        let query = request.uri().query().filter(|_| request.method() == Method::GET)?;
        let (mut wanted, mut rest) = (None, form_urlencoded::Serializer::new(String::new()));
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            match key.as_ref() {
                "watch" => return None,
                "limit" => wanted = value.parse().ok(),
                _ => drop(rest.append_pair(&key, &value)),
            }
        }
        Some(Self { path: request.uri().path().to_owned(), rest: rest.finish(), wanted: wanted? })
    }

    async fn get(&self, client: &Client, head: &Parts, sizes: &Sizes) -> Result<Response<Body>, BoxError> {
        let mut limit = sizes.get(&self.path).unwrap_or(self.wanted).min(self.wanted);
        loop {
            let response = client.send(self.request(head, limit)?).await?;
            if !response.status().is_success() {
                return Ok(response);
            }
            let (answer, body) = response.into_parts();
            // One object is always accepted, because there is no smaller page.
            let bytes = if limit > 1 { PAGE_BYTES } else { usize::MAX };
            match Limited::new(body, bytes).collect().await {
                Ok(whole) => {
                    let whole = whole.to_bytes();
                    let next = if whole.len() < PAGE_BYTES / 4 { limit.saturating_mul(2) } else { limit };
                    sizes.set(&self.path, next.min(self.wanted));
                    return Ok(Response::from_parts(answer, Body::from(whole)));
                }
                Err(error) if error.is::<LengthLimitError>() => limit = (limit / 4).max(1),
                Err(error) => return Err(error),
            }
        }
    }

    fn request(&self, head: &Parts, limit: u32) -> Result<Request<Body>, BoxError> {
        let separator = if self.rest.is_empty() { "" } else { "&" };
        let uri: Uri = format!("{}?{}{separator}limit={limit}", self.path, self.rest).parse()?;
        let mut page = Request::get(uri).body(Body::empty())?;
        page.headers_mut().clone_from(&head.headers);
        page.extensions_mut().clone_from(&head.extensions);
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::ListParams;
    use serde_json::json;

    use super::*;

    /// A server with ConfigMaps of these sizes; notes how many bytes each page had that was read.
    fn server(sizes: Vec<usize>, pages: Arc<Mutex<Vec<usize>>>) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default();
            let asked: HashMap<_, _> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
            assert_eq!(asked.get("labelSelector").map(String::as_str), Some("a=b"));
            let limit: usize = asked["limit"].parse().unwrap();
            let from: usize = asked.get("continue").map_or(0, |from| from.parse().unwrap());
            let to = sizes.len().min(from + limit);
            let items: Vec<_> = (from..to)
                .map(|number| {
                    let data = json!({ "filler": "x".repeat(sizes[number]) });
                    json!({ "metadata": { "name": number.to_string() }, "data": data })
                })
                .collect();
            let next = (to < sizes.len()).then(|| to.to_string());
            let list = json!({ "metadata": { "continue": next }, "items": items }).to_string();
            pages.lock().push(items.len());
            async move { Ok::<_, BoxError>(Response::new(Body::from(list.into_bytes()))) }
        });
        bounded(Client::new(service, "default"))
    }

    async fn all(client: Client, page: u32) -> Vec<(String, usize)> {
        let api: Api<ConfigMap> = Api::default_namespaced(client);
        let mut params = ListParams::default().labels("a=b").limit(page);
        let mut found = Vec::new();
        loop {
            let list = api.list(&params).await.unwrap();
            let size = serde_json::to_vec(&list.items).unwrap().len();
            assert!(list.items.len() == 1 || size < PAGE_BYTES, "{} objects, {size} bytes", list.items.len());
            found.extend(
                list.items.into_iter().map(|item| (item.metadata.name.unwrap(), item.data.unwrap()["filler"].len())),
            );
            match list.metadata.continue_.filter(|next| !next.is_empty()) {
                Some(next) => params = params.continue_token(&next),
                None => return found,
            }
        }
    }

    #[tokio::test]
    async fn a_page_of_large_objects_has_fewer_of_them_and_all_come() {
        let sizes: Vec<_> = [vec![100; 250], vec![1_000_000; 30], vec![3_000_000; 2], vec![100; 900]].concat();
        let pages = Arc::default();
        let found = all(server(sizes.clone(), Arc::clone(&pages)), 200).await;
        let expected: Vec<_> = sizes.iter().enumerate().map(|(number, size)| (number.to_string(), *size)).collect();
        assert_eq!(found, expected);
        assert_eq!(pages.lock()[0], 200, "ordinary objects come as many at a time as are asked for");
        assert_eq!(pages.lock().iter().rev().find(|count| **count == 200), Some(&200));
    }
}
