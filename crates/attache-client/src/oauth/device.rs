//! Login on another device: a person enters a code there while the client polls the server (RFC 8628).

use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;

use super::LoginPrompt;
use super::error::LoginError;
use super::token_request::TokenRequest;
use super::tokens::Tokens;
use crate::ClientError;

/// The time between two polls, if the server does not state it.
const INTERVAL: Duration = Duration::from_secs(5);

/// How much the interval grows each time the server responds with `slow_down`.
const SLOWER: Duration = Duration::from_secs(5);

/// Limits for the interval and for the lifetime of a code, regardless of what the server states.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);
const LONGEST_INTERVAL: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// The response of the device authorization endpoint (RFC 8628, section 3.2).
#[derive(Deserialize)]
pub(super) struct DeviceCodeResponse {
    device_code: String,
    pub(super) user_code: String,
    pub(super) verification_uri: String,
    verification_uri_complete: Option<String>,
    expires_in: u64,
    interval: Option<u64>,
}

/// Lets a person log in, and returns the tokens.
pub(super) async fn login(
    token_request: TokenRequest<'_>,
    show: &(dyn Fn(LoginPrompt<'_>) + Send + Sync),
) -> Result<Tokens, ClientError> {
    let server = token_request.server;
    let Some(device) = &server.device else {
        let why = "its metadata has no device authorization endpoint".to_owned();
        return Err(LoginError::Unsupported(why).at(&server.name));
    };
    let response: DeviceCodeResponse =
        token_request.ask(device, &[token_request.scope(), token_request.target()].concat()).await?;
    show(LoginPrompt::Code {
        url: &response.verification_uri,
        code: &response.user_code,
        url_with_code: response.verification_uri_complete.as_deref(),
    });
    let polling = Polling::of(&response);
    let result = polling.run(async || token_request.device_code(&response.device_code).await).await;
    result.unwrap_or_else(|late| Err(late.at(&server.name)))
}

/// How often to poll, and for how long.
pub(super) struct Polling {
    pub(super) interval: Duration,
    pub(super) limit: Duration,
}

impl Polling {
    /// What a server asks for, within our limits.
    pub(super) fn of(response: &DeviceCodeResponse) -> Self {
        let interval = response.interval.map_or(INTERVAL, Duration::from_secs);
        Self {
            interval: interval.clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL),
            limit: Duration::from_secs(response.expires_in).min(LONGEST),
        }
    }

    /// Polls until there is a result.
    async fn run<T>(
        mut self,
        ask: impl AsyncFn() -> Result<T, ClientError>,
    ) -> Result<Result<T, ClientError>, LoginError> {
        let began = Instant::now();
        loop {
            tokio::time::sleep(self.interval).await;
            let late = LoginError::TooLate { limit: self.limit };
            if began.elapsed() >= self.limit {
                return Err(late);
            }
            match ask().await {
                Err(ClientError::Login { why: LoginError::Refused { code, description }, server }) => {
                    match code.as_str() {
                        "authorization_pending" => {}
                        "slow_down" => self.slow_down(self.interval + SLOWER),
                        "expired_token" => return Err(late),
                        _ => {
                            let why = LoginError::Refused { code, description };
                            return Ok(Err(ClientError::Login { why, server }));
                        }
                    }
                }
                // If the server does not respond, the client polls less often.
                Err(error) if error.is_transient() || matches!(error, ClientError::Timeout { .. }) => {
                    self.slow_down(self.interval * 2);
                }
                result => return Ok(result),
            }
        }
    }

    fn slow_down(&mut self, interval: Duration) {
        self.interval = interval.clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn refused(code: &str) -> Result<(), ClientError> {
        Err(LoginError::refused(code, None).at("https://auth.example"))
    }

    /// The result of polling with these responses, and when each poll was made, in seconds.
    async fn polled(
        limit: u64,
        answers: Vec<Result<(), ClientError>>,
    ) -> (Result<Result<(), ClientError>, LoginError>, Vec<u64>) {
        let (answers, polled_at) = (RefCell::new(answers.into_iter()), RefCell::new(Vec::new()));
        let began = Instant::now();
        let polling = Polling { interval: Duration::from_secs(5), limit: Duration::from_secs(limit) };
        let result = polling
            .run(async || {
                polled_at.borrow_mut().push(began.elapsed().as_secs());
                answers.borrow_mut().next().unwrap_or_else(|| refused("authorization_pending"))
            })
            .await;
        (result, polled_at.into_inner())
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_asked_too_often_is_asked_less_often_from_then_on() {
        let pending = || refused("authorization_pending");
        let answers =
            vec![pending(), refused("slow_down"), pending(), refused("slow_down"), pending(), Ok(())];
        let (result, polled_at) = polled(600, answers).await;
        assert!(matches!(result, Ok(Ok(()))));
        assert_eq!(polled_at, [5, 10, 20, 30, 45, 60]);
    }

    #[test]
    fn a_server_cannot_make_the_client_poll_without_a_pause_or_for_ever() {
        let polling = |interval: Option<u64>, expires_in| {
            let (device_code, user_code, verification_uri) = Default::default();
            let verification_uri_complete = None;
            let response = DeviceCodeResponse {
                device_code,
                user_code,
                verification_uri,
                verification_uri_complete,
                expires_in,
                interval,
            };
            let Polling { interval, limit } = Polling::of(&response);
            (interval.as_secs(), limit.as_secs())
        };
        assert_eq!(polling(None, 0), (5, 0));
        assert_eq!(polling(Some(0), 3600), (1, 3600));
        assert_eq!(polling(Some(1), 3601), (1, 3600));
        assert_eq!(polling(Some(60), u64::MAX), (60, 3600));
        assert_eq!(polling(Some(61), 1), (60, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_breaks_does_not_end_the_login() {
        let broken = || Err(ClientError::Broken("reset".to_owned()));
        let (result, polled_at) = polled(600, vec![broken(), broken(), Ok(())]).await;
        assert!(matches!(result, Ok(Ok(()))));
        assert_eq!(polled_at, [5, 15, 35]);
    }

    #[tokio::test(start_paused = true)]
    async fn polling_ends_when_the_code_expires() {
        let (result, polled_at) = polled(17, vec![]).await;
        assert_eq!(result.unwrap_err(), LoginError::TooLate { limit: Duration::from_secs(17) });
        assert_eq!(polled_at, [5, 10, 15]);
        let (result, _) = polled(600, vec![refused("expired_token")]).await;
        assert!(matches!(result, Err(LoginError::TooLate { .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn a_person_who_says_no_ends_the_login() {
        let (result, polled_at) =
            polled(600, vec![refused("authorization_pending"), refused("access_denied")]).await;
        let Ok(Err(ClientError::Login { why, .. })) = result else { panic!("{result:?}") };
        assert_eq!((why, polled_at), (LoginError::refused("access_denied", None), vec![5, 10]));
    }
}
