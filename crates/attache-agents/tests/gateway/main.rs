//! A gateway in front of remote agents: our own server with a scripted agent over every binding, and remotes that misbehave.

mod cards;
mod continuing;
mod handmade;
mod hostile;
mod oldest;
mod outages;
mod repeating;
mod support;
mod surface;
mod wire;
mod writes;
