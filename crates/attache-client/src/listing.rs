//! Paged lists.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::stream::{self, BoxStream, Stream, StreamExt};

use crate::ClientError;

/// A paged list. The next page is requested when the previous one has been read. An error is the last item.
pub struct Listing<T>(BoxStream<'static, Result<T, ClientError>>);

/// A page, and the token of the next page, which is empty after the last.
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next: String,
}

impl<T: Send + 'static> Listing<T> {
    /// The next item; nothing at the end. The same as `StreamExt::next`, without the import.
    pub async fn next(&mut self) -> Option<Result<T, ClientError>> {
        self.0.next().await
    }

    /// All pages that `ask` returns, starting at `first`.
    pub(crate) fn new<F>(
        first: Option<String>,
        ask: impl Fn(Option<String>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Page<T>, ClientError>> + Send + 'static,
    {
        struct State<A, T> {
            ask: A,
            items: VecDeque<T>,
            /// The token of the next page; nothing after the last.
            next: Option<Option<String>>,
        }
        let state = State { ask, items: VecDeque::new(), next: Some(first) };
        let items = stream::try_unfold(state, |mut state| async move {
            loop {
                if let Some(item) = state.items.pop_front() {
                    return Ok(Some((item, state)));
                }
                let Some(token) = state.next.take() else { return Ok(None) };
                let Page { items, next } = (state.ask)(token.clone()).await?;
                state.items.extend(items);
                if token.as_ref() == Some(&next) {
                    let text = "a page of the list has its own token as the token of the next page";
                    return Err(ClientError::Protocol(text.to_owned()));
                }
                state.next = (!next.is_empty()).then_some(Some(next));
            }
        });
        Self(items.fuse().boxed())
    }
}

impl<T> Stream for Listing<T> {
    type Item = Result<T, ClientError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(cx)
    }
}

impl<T> std::fmt::Debug for Listing<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listing").finish_non_exhaustive()
    }
}
