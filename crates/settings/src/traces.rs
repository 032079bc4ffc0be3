//! Where traces go, and of how many requests.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Path of traces at an OTLP collector.
const TRACES_PATH: &str = "/v1/traces";

/// The URL that traces are posted to; the default is none, and no traces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TraceEndpoint(Option<String>);

impl TraceEndpoint {
    /// The whole URL; `None` when traces are off.
    pub fn url(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

/// An endpoint that traces cannot be posted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EndpointError {
    #[error("give a URL that begins with http://; a collector next to the server can speak TLS")]
    Scheme,
    #[error("the URL has no host, or has characters that belong into none")]
    Host,
    #[error("leave user and password out; the collector next to the server can hold them")]
    Credentials,
}

impl FromStr for TraceEndpoint {
    type Err = EndpointError;

    /// Takes a collector's base URL, or the whole one.
    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(Self(None));
        }
        let rest = text.strip_prefix("http://").ok_or(EndpointError::Scheme)?;
        let host = rest.split('/').next().unwrap_or_default();
        if host.contains('@') {
            return Err(EndpointError::Credentials);
        }
        let fit = |byte: u8| byte.is_ascii_graphic() && !b"?#\"<>\\^`{|}".contains(&byte);
        if host.is_empty() || host.starts_with(':') || !rest.bytes().all(fit) {
            return Err(EndpointError::Host);
        }
        let base = text.trim_end_matches('/');
        let base = base.strip_suffix(TRACES_PATH).unwrap_or(base);
        Ok(Self(Some(format!("{base}{TRACES_PATH}"))))
    }
}

/// Part of the requests without a parent that get an exported trace, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampleRatio(f64);

impl SampleRatio {
    /// The part.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl Default for SampleRatio {
    fn default() -> Self {
        Self(1.0)
    }
}

/// A ratio that is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleRatioError(String);

impl fmt::Display for SampleRatioError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "'{}' is not a number from 0 to 1", self.0)
    }
}

impl FromStr for SampleRatio {
    type Err = SampleRatioError;

    fn from_str(text: &str) -> Result<Self, SampleRatioError> {
        let ratio = text.trim().parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
        ratio.map(Self).ok_or_else(|| SampleRatioError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_base_or_whole_urls_without_secrets() {
        let url = |text: &str| text.parse::<TraceEndpoint>().map(|endpoint| endpoint.0);
        assert_eq!(url(" "), Ok(None));
        for text in ["http://c:4318", "http://c:4318/", "http://c:4318/v1/traces"] {
            assert_eq!(url(text), Ok(Some("http://c:4318/v1/traces".to_owned())), "{text}");
        }
        assert_eq!(url("http://[::1]:1/x"), Ok(Some("http://[::1]:1/x/v1/traces".to_owned())));
        assert_eq!(url("https://c"), Err(EndpointError::Scheme));
        assert_eq!(url("c:4318"), Err(EndpointError::Scheme));
        assert_eq!(url("http://user:word@c"), Err(EndpointError::Credentials));
        for text in ["http://", "http:///x", "http://:1", "http://a b", "http://a?b", "http://ä"] {
            assert_eq!(url(text), Err(EndpointError::Host), "{text}");
        }
    }

    #[test]
    fn ratios_are_parts_of_one() {
        for (text, ratio) in [("0", Some(0.0)), ("1", Some(1.0)), (" 0.25", Some(0.25))] {
            assert_eq!(text.parse().ok().map(SampleRatio::get), ratio, "{text}");
        }
        for text in ["", "-0.1", "1.1", "NaN", "inf", "half"] {
            assert!(text.parse::<SampleRatio>().is_err(), "{text}");
        }
    }
}
