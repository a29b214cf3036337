//! Where the URL of an MCP server leads, by what stands in it. Names are not looked up: whoever could change the answer
//! afterwards would make a look worthless, and it is the agent that connects.

use url::{Host, Url};

/// Names of the machine itself and of the network around it.
const PRIVATE_NAMES: [&str; 11] =
    ["corp", "home", "home.arpa", "internal", "intranet", "lan", "local", "localdomain", "localhost", "private", "svc"];

/// Whether it is a URL that an agent can be given; else what is wrong, and what to do.
pub fn check(url: &str) -> Result<(), (&'static str, &'static str)> {
    const HINT: &str = "give a complete URL, such as https://mcp.example.com/mcp";
    let parsed = Url::parse(url).map_err(|_| ("is not a URL", HINT))?;
    if !matches!(parsed.scheme(), "http" | "https") || parsed.host().is_none() {
        return Err(("must start with http:// or https://", HINT));
    }
    // It is stored and shown.
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(("contains a user name or a password", "send them in a header, with ${NAME} instead of the value"));
    }
    // The library is more patient with them than an agent's may be.
    let rest = ["http://", "https://"].iter().find_map(|scheme| {
        let beginning = url.get(..scheme.len())?;
        beginning.eq_ignore_ascii_case(scheme).then(|| &url[scheme.len()..])
    });
    let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next());
    if host.is_none_or(|host| host.is_empty() || host.contains('@')) || url.contains("${") {
        return Err(("is not a valid URL", HINT));
    }
    if url.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
        return Err(("has a character that is not allowed in a URL", HINT));
    }
    Ok(())
}

/// What the parameters of its query are called.
pub fn query_names(url: &str) -> Vec<String> {
    let parsed = Url::parse(url).ok();
    parsed.iter().flat_map(Url::query_pairs).map(|(name, _)| name.into_owned()).collect()
}

/// The host, when it is one of this machine or its network, or one that tells of the machine: loopback, link-local (where
/// clouds have their metadata), private and whatever else is not of the open internet.
pub fn private_host(url: &str) -> Option<String> {
    let parsed = Url::parse(url).ok()?;
    let is_private = match parsed.host()? {
        Host::Domain(name) => is_private_name(name),
        Host::Ipv4(address) => is_private_v4(address.octets()),
        Host::Ipv6(address) => is_private_v6(address.segments()),
    };
    is_private.then(|| parsed.host_str().unwrap_or_default().to_owned())
}

fn is_private_name(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let is_below = |suffix: &str| name == suffix || name.strip_suffix(suffix).is_some_and(|rest| rest.ends_with('.'));
    // A name without a dot is looked for in the network around.
    !name.contains('.') || PRIVATE_NAMES.iter().any(|suffix| is_below(suffix))
}

const fn is_private_v4([a, b, c, _]: [u8; 4]) -> bool {
    match (a, b) {
        // This network, private, loopback; multicast, reserved, broadcast.
        (0 | 10 | 127 | 224..=255, _) => true,
        // Shared by carriers.
        (100, 64..=127) => true,
        // Link-local.
        (169, 254) => true,
        (172, 16..=31) => true,
        // For protocols and for examples; once for 6to4.
        (192, 0) => matches!(c, 0 | 2),
        (192, 88) => c == 99,
        (198, 51) => c == 100,
        (203, 0) => c == 113,
        // What a cloud tells its machines.
        (168, 63) => c == 129,
        (192, 168) => true,
        // For measurements.
        (198, 18 | 19) => true,
        _ => false,
    }
}

fn is_private_v6(segments: [u16; 8]) -> bool {
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_private_v4([a, b, c, d])
    };
    match segments {
        // Unspecified, loopback, and addresses of IPv4 in their older form; mapped; translated.
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => v4(high, low),
        // NAT64, over the internet and within one network.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => v4(high, low),
        [0x64, 0xff9b, 1, _, _, _, _, _] => true,
        // 6to4; Teredo, which hides an address of IPv4.
        [0x2002, high, low, _, _, _, _, _] => v4(high, low),
        [0x2001, 0, _, _, _, _, _, _] => true,
        // To be thrown away; for segments; for examples.
        [0x100, 0, 0, 0, ..] | [0x5f00, ..] | [0x2001, 0xdb8, ..] => true,
        // Unique local, link-local, the older site-local, multicast.
        [first, ..] => {
            first & 0xfe00 == 0xfc00 || first & 0xffc0 == 0xfe80 || first & 0xffc0 == 0xfec0 || first >= 0xff00
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hosts_of_the_machine_and_its_network_are_recognized_however_they_are_written() {
        for host in [
            "localhost",
            "LOCALHOST",
            "localhost.",
            "a.localhost",
            "metadata.google.internal",
            "metadata",
            "printer.local",
            "router.lan",
            "nas.home.arpa",
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "0177.0.0.1",
            "0",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "169.254.169.254",
            "localhost.localdomain",
            "kubernetes.default.svc",
            "wiki.intranet",
            "168.63.129.16",
            "203.0.113.5",
            "192.0.0.192",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "１２７.0.0.1",
            "[::]",
            "[::1]",
            "[0:0:0:0:0:0:0:1]",
            "[::127.0.0.1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:a9fe:a9fe]",
            "[::ffff:0:10.0.0.1]",
            "[64:ff9b::10.0.0.1]",
            "[64:ff9b:1::1]",
            "[2002:7f00:1::]",
            "[2001::1]",
            "[fc00::1]",
            "[fd00:ec2::254]",
            "[fe80::1]",
            "[fec0::1]",
            "[ff02::1]",
        ] {
            assert!(private_host(&format!("http://{host}:8080/mcp")).is_some(), "{host}");
        }
    }

    #[test]
    fn hosts_of_the_open_internet_are_not_refused() {
        for host in [
            "mcp.example.com",
            "localhost.example.com",
            "mylocal.net",
            "internal.example.org",
            "8.8.8.8",
            "172.32.0.1",
            "172.15.0.1",
            "100.63.0.1",
            "100.128.0.1",
            "168.63.128.1",
            "169.253.0.1",
            "[2606:4700::1111]",
            "[::ffff:8.8.8.8]",
            "[64:ff9b::8.8.8.8]",
            "[2002:808:808::]",
        ] {
            assert_eq!(private_host(&format!("https://{host}/mcp")), None, "{host}");
        }
    }

    #[test]
    fn only_whole_urls_of_http_without_a_password_are_taken() {
        for url in ["http://a.example/", "https://a.example:8443/x?y=z", "https://[2606:4700::1]/"] {
            assert_eq!(check(url), Ok(()), "{url}");
        }
        for url in [
            "",
            "a.example",
            "/mcp",
            "ftp://a.example/",
            "file:///etc/passwd",
            "http://",
            "http:a.example",
            "http:/a.example",
            "https://@a.example/",
            "https://a.example/?x=${KEY}",
            "https://me@a.example/",
            "https://me:pw@a.example/",
            "https://a.example/\nx",
            "https://a.example\\x",
            " https://a.example/",
            "https://a.exa\tmple/",
        ] {
            assert!(check(url).is_err(), "{url:?}");
        }
        assert_eq!(query_names("https://a.example/?api_key=x&b"), ["api_key", "b"]);
    }

    proptest! {
        /// Whatever form an address has, it is the same address.
        #[test]
        fn an_address_of_ipv4_is_judged_alike_in_every_form(address: u32) {
            let [a, b, c, d] = address.to_be_bytes();
            let is_private = |host: String| private_host(&format!("http://{host}/")).is_some();
            let expected = is_private_v4([a, b, c, d]);
            prop_assert_eq!(is_private(format!("{a}.{b}.{c}.{d}")), expected);
            prop_assert_eq!(is_private(address.to_string()), expected);
            prop_assert_eq!(is_private(format!("{address:#x}")), expected);
            prop_assert_eq!(is_private(format!("[::ffff:{a}.{b}.{c}.{d}]")), expected);
            prop_assert_eq!(is_private(format!("[64:ff9b::{a}.{b}.{c}.{d}]")), expected);
        }

        #[test]
        fn nothing_makes_it_panic(url in "\\PC{0,40}") {
            let _ = (check(&url), private_host(&url), query_names(&url));
        }
    }
}
