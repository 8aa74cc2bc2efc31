//! Stands in for the gRPC binding in a client that was built without the feature `grpc`.
//!
//! No value of these types exists, so the code that handles gRPC elsewhere compiles and never runs. A request that needs gRPC fails
//! with an error that names the feature.

use attache_protocol::{Error, Request, StreamResponse, Version};
use bytes::Bytes;
use reqwest::{Response, Url};

use super::Call;
use crate::ClientError;
use crate::error::WITHOUT_GRPC;
use crate::sdk::Sdk;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Package {}

#[derive(Debug, Clone, Copy)]
pub(crate) enum FileForm {}

#[derive(Debug)]
pub(crate) enum Messages {}

pub(super) fn write(_: &Url, _: Version, _: Sdk, _: &Request) -> Result<Call, ClientError> {
    Err(missing())
}

pub(super) fn read_answer<T>(package: Package, _: FileForm, _: &[u8]) -> Result<T, Error> {
    match package {}
}

pub(super) fn read_event(
    package: Package,
    _: FileForm,
    _: &[u8],
) -> Result<Option<(StreamResponse, bool)>, Error> {
    match package {}
}

impl Messages {
    pub(super) fn new(_: Url, _: Response, _: usize) -> Result<Self, ClientError> {
        Err(missing())
    }

    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        match *self {}
    }

    pub(super) async fn only(self) -> Result<Bytes, ClientError> {
        match self {}
    }
}

fn missing() -> ClientError {
    ClientError::Setup(WITHOUT_GRPC.to_owned())
}
