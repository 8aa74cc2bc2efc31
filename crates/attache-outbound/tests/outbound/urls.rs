//! Which URLs `check_url` refuses.

use attache_outbound::{MAX_URL, Policy, Refused};

/// Every URL is refused, with a reason of this kind.
#[track_caller]
fn refused(urls: &[&str], kind: impl Fn(&Refused) -> bool) {
    for url in urls {
        match Policy::default().check_url(url) {
            Err(reason) => assert!(kind(&reason), "`{url}` is refused as {reason:?}"),
            Ok(target) => panic!("`{url}` passes as {target:?}"),
        }
    }
}

#[track_caller]
fn pass(policy: &Policy, urls: &[&str]) {
    for url in urls {
        assert!(policy.check_url(url).is_ok(), "`{url}`: {:?}", policy.check_url(url));
    }
}

#[test]
fn only_http_and_https_pass() {
    refused(
        &[
            "",
            "hooks.example.com",
            "//hooks.example.com/",
            "/etc/passwd",
            "file:///etc/passwd",
            "ftp://hooks.example.com/",
            "gopher://hooks.example.com:70/_x",
            "dict://hooks.example.com:11211/stat",
            "ldap://hooks.example.com/",
            "tftp://hooks.example.com/x",
            "jar:http://hooks.example.com!/",
            "javascript://hooks.example.com/%0aalert(1)",
            "data:text/plain,hello",
            "ws://hooks.example.com/",
            "unix:///var/run/docker.sock",
            "http+unix://%2Fvar%2Frun%2Fdocker.sock/info",
            "http:hooks.example.com",
            "http:/hooks.example.com",
            "xhttp://hooks.example.com/",
        ],
        |reason| matches!(reason, Refused::Scheme),
    );
}

#[test]
fn an_address_that_is_not_public_is_refused_in_any_spelling() {
    refused(
        &[
            "http://127.0.0.1/",
            "http://127.0.0.1:8080/",
            "https://127.255.255.254/",
            "http://127.1/",
            "http://127.0.1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0X7F.1/",
            "http://0x7f.0x0.0x0.0x1/",
            "http://0177.0.0.1/",
            "http://017700000001/",
            "http://00000177.0.0.1/",
            "http://127.0.0.1./",
            "http://0/",
            "http://0.0.0.0/",
            "http://00.00.00.00/",
            "http://10.0.0.1/",
            "http://167772161/",
            "http://012.1/",
            "http://100.64.0.1/",
            "http://169.254.0.1/",
            "http://172.16.0.1/",
            "http://172.31.255.255/",
            "http://192.0.0.8/",
            "http://192.0.2.1/",
            "http://192.88.99.1/",
            "http://192.168.1.1/",
            "http://192.168.257/",
            "http://198.18.0.1/",
            "http://198.19.255.255/",
            "http://198.51.100.1/",
            "http://203.0.113.1/",
            "http://224.0.0.1/",
            "http://239.255.255.250:1900/",
            "http://240.0.0.1/",
            "http://255.255.255.255/",
            "http://4294967295/",
            "http://[::]/",
            "http://[::1]/",
            "http://[0:0:0:0:0:0:0:1]/",
            "http://[0000:0000:0000:0000:0000:0000:0000:0001]:80/",
            "http://[::127.0.0.1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::FFFF:7f00:1]/",
            "http://[::ffff:10.0.0.1]/",
            "http://[::ffff:0:127.0.0.1]/",
            "http://[64:ff9b::127.0.0.1]/",
            "http://[64:ff9b::10.0.0.1]/",
            "http://[64:ff9b:1::8.8.8.8]/",
            "http://[100::1]/",
            "http://[2001::1]/",
            "http://[2001:2::1]/",
            "http://[2001:db8::1]/",
            "http://[2002:7f00:1::]/",
            "http://[2002:808:808::1]/",
            "http://[2606:4700::5efe:10.0.0.1]/",
            "http://[2606:4700::200:5efe:10.0.0.1]/",
            "http://[3fff::1]/",
            "http://[4000::1]/",
            "http://[5f00::1]/",
            "http://[fc00::1]/",
            "http://[fd12:3456::1]/",
            "http://[fe80::1]/",
            "http://[fec0::1]/",
            "http://[ff02::1]/",
        ],
        |reason| matches!(reason, Refused::Address { .. }),
    );
}

#[test]
fn a_public_ipv4_address_has_one_spelling() {
    refused(
        &[
            "http://134744072/",
            "http://0x08080808/",
            "http://010.8.8.8/",
            "http://8.8.2056/",
            "http://8.8.8.8.:80/",
        ],
        |reason| matches!(reason, Refused::Spelling(address) if address.octets() == [8, 8, 8, 8]),
    );
}

#[test]
fn metadata_services_are_refused_even_in_an_allowed_network() {
    let urls = [
        "http://169.254.169.254/latest/meta-data/",
        "http://2852039166/",
        "http://0xa9fea9fe/",
        "http://0251.0376.0251.0376/",
        "http://169.254.170.2/v2/credentials",
        "http://[::ffff:169.254.169.254]/",
        "http://[::ffff:a9fe:a9fe]/",
        "http://[::169.254.169.254]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[64:ff9b:1::a9fe:a9fe]/",
        "http://[64:ff9b:1:a9fe:a9:fe00::]/",
        "http://[2002:a9fe:a9fe::1]/",
        "http://[2001::5601:5601]/",
        "http://[fe80::5efe:a9fe:a9fe]/",
        "http://[fd00:ec2::254]/",
        "http://[fd20:ce::254]/",
        "http://100.100.100.200/latest/meta-data/",
        "http://168.63.129.16/machine",
        "http://192.0.0.192/latest/",
        "http://metadata/computeMetadata/v1/",
        "http://metadata.google.internal/computeMetadata/v1/",
        "http://METADATA.google.internal/",
        "http://metadata.goog/",
        "http://instance-data/latest/",
    ];
    refused(&urls, |reason| matches!(reason, Refused::Metadata));
    let everything = Policy::default().allow(["0.0.0.0/0", "::/0"].map(|network| network.parse().unwrap()));
    for url in urls {
        assert_eq!(everything.check_url(url).unwrap_err(), Refused::Metadata, "{url}");
    }
}

#[test]
fn names_of_this_machine_and_of_private_networks_are_refused() {
    refused(
        &[
            "http://localhost/",
            "http://LOCALHOST:80/",
            "http://hooks.localhost/",
            "https://a.b.localhost:8443/",
        ],
        |reason| matches!(reason, Refused::LoopbackName),
    );
    refused(
        &[
            "http://hooks/",
            "http://ip6-localhost/",
            "http://localhost.localdomain/",
            "http://kubernetes.default.svc.cluster.local/",
            "http://printer.local/",
            "http://hooks.internal/",
            "http://host.docker.internal:2375/",
            "http://wiki.corp/",
            "http://router.lan/",
            "http://router.home.arpa/",
        ],
        |reason| matches!(reason, Refused::PrivateName),
    );
}

#[test]
fn a_trailing_dot_is_refused() {
    refused(
        &["http://localhost./", "http://hooks.example.com./", "http://metadata.google.internal./"],
        |reason| matches!(reason, Refused::TrailingDot),
    );
}

#[test]
fn credentials_are_refused() {
    refused(
        &[
            "http://user:s3cret@hooks.example.com/",
            "http://s3cret@hooks.example.com/",
            "http://@hooks.example.com/",
            "http://:@hooks.example.com/",
            "http://hooks.example.com@127.0.0.1/",
            "http://hooks.example.com:80@127.0.0.1/",
            "http://hooks.example.com%2f@127.0.0.1/",
            "http://127.0.0.1@hooks.example.com/",
            "http://a@b@127.0.0.1/",
        ],
        |reason| matches!(reason, Refused::Credentials),
    );
}

#[test]
fn what_parsers_disagree_about_is_refused() {
    refused(
        &[
            " http://hooks.example.com/",
            "http://hooks.example.com/ ",
            "http://hooks.example.com/a b",
            "http://hooks.example.com\t/",
            "http://hooks.example.com/\r\nX-Injected: 1",
            "ht\ntp://127.0.0.1/",
            "http://127.0.0.1\u{0}.example.com/",
            "http://hooks.example.com\\@127.0.0.1/",
            "http:\\\\127.0.0.1\\",
            "http://hooks.example.com/\u{7f}",
        ],
        |reason| matches!(reason, Refused::Character),
    );
    refused(
        &[
            "http://hooks.example.com#@127.0.0.1/",
            "http://hooks.example.com/#fragment",
            "http://hooks.example.com/#",
        ],
        |reason| matches!(reason, Refused::Fragment),
    );
    refused(&["http://", "http:///", "http:///hooks.example.com/", "http://:80/", "http://?x=1"], |reason| {
        matches!(reason, Refused::NoHost)
    });
}

#[test]
fn a_host_that_is_not_written_as_dns_writes_it_is_refused() {
    let long = format!("http://{}.com/", "a".repeat(64));
    let longer = format!("http://{}com/", "abcdefg.".repeat(32));
    refused(
        &[
            "http://１２７.０.０.１/",
            "http://127。0。0。1/",
            "http://①②⑦.⓪.⓪.①/",
            "http://ｌｏｃａｌｈｏｓｔ/",
            "http://local\u{ad}host/",
            "http://bücher.example.com/",
            "http://%31%32%37.0.0.1/",
            "http://localhos%74/",
            "http://hooks.example.com%00.internal/",
            "http://[fe80::1%25eth0]/",
            "http://[::1%lo]/",
            "http://hooks..example.com/",
            "http://.example.com/",
            "http://*.example.com/",
            &long,
            &longer,
        ],
        |reason| matches!(reason, Refused::Host),
    );
    refused(
        &[
            "http://127.0.0.256/",
            "http://127.0.0.1.1/",
            "http://0x100000000/",
            "http://1.2.3.08/",
            "http://[::1/",
            "http://[::1].example.com/",
            "http://[127.0.0.1]/",
            "http://[::ffff:127.0.0.256]/",
            "http://hooks.example.com:65536/",
            "http://hooks.example.com:-1/",
            "http://hooks.example.com:80:80/",
            "http://hooks<example.com/",
        ],
        |reason| matches!(reason, Refused::Malformed(_)),
    );
}

#[test]
fn port_0_and_overlong_urls_are_refused() {
    refused(&["http://hooks.example.com:0/", "https://8.8.8.8:00/"], |reason| {
        matches!(reason, Refused::Port)
    });
    let fits = |length: usize| format!("{:x<length$}", "https://hooks.example.com/");
    pass(&Policy::default(), &[&fits(MAX_URL)]);
    refused(
        &[&fits(MAX_URL + 1)],
        |reason| matches!(reason, Refused::TooLong { length } if *length == MAX_URL + 1),
    );
}

#[test]
fn public_urls_pass() {
    pass(
        &Policy::default(),
        &[
            "https://hooks.example.com",
            "https://hooks.example.com/",
            "HTTPS://Hooks.Example.COM/A2A",
            "http://hooks.example.com:8080/a2a?task=1&token=x%20y",
            "https://hooks.example.com?x",
            "https://hooks.example.com/@user/http://127.0.0.1/",
            "https://webhook.invalid/does-not-exist",
            "https://unreachable.test/",
            "https://xn--bcher-kva.example.com/",
            "https://my_hooks.example.com/",
            "https://localhost.example.com/",
            "https://notlocalhost.com/",
            "https://internal.example.com/",
            "https://10.example.com/",
            "https://8.8.8.8/",
            "https://1.1.1.1:8443/",
            "http://172.32.0.1/",
            "http://100.128.0.1/",
            "http://[2606:4700:4700::1111]/",
            "http://[2001:4860:4860:0:0:0:0:8888]:8080/",
            "http://[::ffff:8.8.8.8]/",
            "http://[64:ff9b::8.8.8.8]/",
        ],
    );
}

#[test]
fn loopback_passes_where_it_is_allowed_and_nothing_else_does() {
    let policy = Policy::default().allow_loopback(true);
    pass(
        &policy,
        &[
            "http://localhost:3000/",
            "http://a.localhost/",
            "http://127.0.0.1:3000/",
            "http://127.9.9.9/",
            "http://[::1]/",
        ],
    );
    for url in [
        "http://localhost./",
        "http://127.1/",
        "http://user@localhost/",
        "http://0.0.0.0/",
        "http://[64:ff9b::7f00:1]/",
        "http://[::127.0.0.1]/",
        "http://192.168.0.1/",
        "http://hooks/",
        "http://169.254.169.254/",
    ] {
        assert!(policy.check_url(url).is_err(), "{url}");
    }
}

#[test]
fn an_allowed_network_passes_and_its_neighbours_do_not() {
    let policy =
        Policy::default().allow(["10.1.0.0/16", "fd00:1::/32"].map(|network| network.parse().unwrap()));
    pass(
        &policy,
        &[
            "http://10.1.255.255/",
            "http://[fd00:1::1]/",
            "http://[::ffff:10.1.0.1]/",
            "http://hooks:80/",
            "http://a.internal/",
        ],
    );
    for url in ["http://10.2.0.0/", "http://[fd00:2::1]/", "http://[64:ff9b::10.1.0.1]/", "http://localhost/"]
    {
        assert!(policy.check_url(url).is_err(), "{url}");
    }
}

#[test]
fn https_can_be_demanded() {
    let policy = Policy::default().https_only(true);
    pass(&policy, &["https://hooks.example.com/"]);
    assert_eq!(policy.check_url("http://hooks.example.com/").unwrap_err(), Refused::Insecure);
}

#[test]
fn what_is_said_about_a_url_contains_no_secret_of_it() {
    for url in [
        "https://user:s3cret@hooks.example.com/",
        "https://s3cret#x@hooks.example.com/",
        "https://user:s3cret/x@hooks.example.com/",
        "https://s3cret?x@hooks.example.com/",
        "s3cret://hooks.example.com/",
        "https://10.0.0.1/?token=s3cret",
        "https://hooks.internal/s3cret",
        "https://hooks.example.com:s3cret/",
    ] {
        let reason = Policy::default().check_url(url).unwrap_err();
        assert!(!format!("{reason} {reason:?}").contains("s3cret"), "{url}: {reason}");
    }
    let target = Policy::default().check_url("https://hooks.example.com/s3cret?token=s3cret").unwrap();
    assert_eq!(format!("{target:?}"), r#"Target("https://hooks.example.com")"#);
}
