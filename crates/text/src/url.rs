//! URLs as they may be shown.

/// A URL without its user, password and parameters, which may hold a password, too.
pub fn without_login(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    // A path of this machine has no user before it.
    let place = match rest.rsplit_once('@') {
        Some((_, place)) if !rest.starts_with('/') => place,
        _ => rest,
    };
    let place = place.split('?').next().unwrap_or_default();
    match scheme {
        "" => place.into(),
        scheme => format!("{scheme}://{place}"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_password_is_shown() {
        for (url, shown) in [
            ("redis://h:1/2", "redis://h:1/2"),
            ("rediss://u:p@h:x", "rediss://h:x"),
            ("redis://:p@q/r?s@h", "redis://h"),
            ("redis+unix:///a@b?pass=p@q", "redis+unix:///a@b"),
            ("u:p@h", "h"),
        ] {
            assert_eq!(super::without_login(url), shown);
        }
    }
}
