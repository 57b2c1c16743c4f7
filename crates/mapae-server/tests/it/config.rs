//! Configuration: layers, mistakes told all at once, secrets that stay secret.

use std::time::Duration;

use mapae_server::config::{Config, ConfigError, Flag, Settings, key, reference};

/// A configuration from these three layers, over the defaults.
fn gather(file: &str, environment: &[(&str, &str)], flags: &[Flag]) -> Result<Settings, Vec<ConfigError>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mapae.toml");
    std::fs::write(&path, file).unwrap();
    let environment = environment.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
    Settings::gather(Some(&path), environment, flags)
}

fn load(file: &str) -> Result<Config, Vec<String>> {
    let told = |errors: Vec<ConfigError>| errors.iter().map(ToString::to_string).collect::<Vec<_>>();
    gather(file, &[], &[]).and_then(|settings| Config::resolve(&settings)).map_err(told)
}

#[test]
fn every_default_can_be_read_and_is_safe() {
    let config =
        load("[kind.\"document.analyze\"]\nattempts = 5\n[handler.\"a.b\"]\nurl = \"http://ai/\"").unwrap();
    assert_eq!(config.http.listen.to_string(), "127.0.0.1:7070");
    assert_eq!(config.kinds.values().next().unwrap().timeout, Duration::from_secs(1800));
}

#[test]
fn the_example_of_the_design_is_a_configuration() {
    let config = load(
        r#"
        [database]
        url = "sqlite:mapae-data/mapae.db"
        [broker]
        url = "embedded:"
        window = 1000
        [files]
        url = "file:mapae-data/files"
        [http]
        listen = "127.0.0.1:7070"
        [worker]
        name = "host"
        slots = 4
        prefetch = 4
        kinds = ["*"]
        drain = "60s"
        lease = "30s"
        heartbeat = "5s"
        [rescan]
        after = "60s"
        [kind."document.analyze"]
        attempts = 5
        timeout = "30m"
        backoff = "2s..10m"
        needs = { memory = "512MiB", ai = 1 }
        [resource]
        memory = "4GiB"
        ai = { concurrent = 8, rate = "300/min", scope = "global" }
        [handler."context.process"]
        url = "http://ai:8000/internal/v1/context/process"
        body = "raw"
        timeout = "10s"
        concurrent = 4
        accepted = [202]
        deadline = "5m"
        secret = ["whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]
        retry = { attempts = 3, backoff = "10s..10m" }
        [handler."context.process".complete]
        key = "params.contextId"
        callback = { path = "/hooks/context-done", key = "$.contextId", status = "$.status", done = ["DONE"], failed = ["FAILED"] }
        "#,
    )
    .unwrap();
    assert!(!format!("{config:?}").contains("C2FVsBQI"));
    assert_eq!(config.worker.name, None);
    assert_eq!(config.capacity().get("memory"), Some(4 << 30));
    let limits = config.limits();
    let [(name, ai)] = <[_; 1]>::try_from(limits.resources().collect::<Vec<_>>()).unwrap();
    assert_eq!((name, ai.concurrent, ai.rate.unwrap().starts), ("ai", Some(8), 300));
    let kind = "context.process".parse().unwrap();
    assert_eq!(config.retry(&kind).attempts, 3);
}

#[test]
fn a_later_layer_wins_and_explain_says_which() {
    let file = "[worker]\nslots = 2\nprefetch = 2\n[database]\nurl = { file = \"/nowhere\" }";
    let environment = [
        ("MAPAE_WORKER_SLOTS", "3"),
        ("MAPAE_WORKER_PREFETCH", "3"),
        ("MAPAE_DATABASE_URL", "sqlite:x.db"),
        ("MAPAE_PORT_7070_TCP", "set by Kubernetes"),
        ("PATH", "/bin"),
    ];
    let flags = [("worker.slots", "5".to_owned(), "--slots")];
    let settings = gather(file, &environment, &flags).unwrap();
    let config = Config::resolve(&settings).unwrap();
    assert_eq!((config.worker.slots, config.worker.prefetch), (5, 3));
    assert_eq!(config.database.reveal(), "sqlite:x.db");
    assert!(settings.explain("worker.slots").unwrap().contains("from:     the flag --slots"));
    assert!(settings.explain("worker.prefetch").unwrap().contains("MAPAE_WORKER_PREFETCH"));
    assert!(settings.explain("rescan.after").unwrap().contains("from:     the default"));
    assert!(
        settings.explain("kind.document.analyze.attempts").unwrap().starts_with("kind.\"document.analyze\"")
    );
    assert_eq!(settings.explain("worker.slot"), Err(Some("worker.slots".into())));
}

#[test]
fn all_mistakes_are_told_at_once_each_with_key_found_and_possible() {
    let errors = load(
        r#"
        [worker]
        slots = 0
        drain = "soon"
        [http]
        listen = "everywhere"
        [kind."Document Analyze"]
        attempts = 1
        [kind.mail]
        backoff = "10m..2s"
        "#,
    )
    .unwrap_err();
    for words in [
        vec!["worker.slots", "is 0", "1 to 1024"],
        vec!["worker.drain", "\"soon\"", "\"30s\""],
        vec!["http.listen", "\"everywhere\"", "127.0.0.1:7070"],
        vec!["kind.\"Document Analyze\"", "a-z"],
        vec!["kind.mail.backoff", "10m..2s", "2s..10m"],
    ] {
        let told = errors.iter().any(|error| words.iter().all(|word| error.contains(word)));
        assert!(told, "{words:?} in {errors:#?}");
    }
    assert_eq!(errors.len(), 5, "{errors:#?}");
}

#[test]
fn unknown_keys_name_the_nearest_known_one() {
    let cases = [
        ("[databse]\nurl = \"x:\"", "did you mean database?"),
        ("[worker]\nslot = 1", "did you mean worker.slots?"),
        ("[kind.\"a.b\"]\natempts = 1", "did you mean kind.\"a.b\".attempts?"),
        ("[weather]\nsun = true", "is no key of the configuration"),
        ("worker = 4", "a table, written [worker]"),
    ];
    for (file, words) in cases {
        let errors = load(file).unwrap_err();
        assert!(errors.len() == 1 && errors[0].contains(words), "{file:?}: {errors:?}");
    }
    let errors = gather("", &[("MAPAE_DATABSE_URL", "sqlite:x")], &[]).unwrap_err();
    assert!(errors[0].to_string().contains("did you mean MAPAE_DATABASE_URL?"), "{errors:?}");
}

#[test]
fn what_this_version_does_not_do_is_refused_not_ignored() {
    for file in
        ["[dashboard]\ntitle = \"x\"", "[handler.\"a.b\".complete]\nevent = { source = \"amqp://mq/x\" }"]
    {
        let errors = load(file).unwrap_err();
        assert!(errors.iter().any(|error| error.contains("is not in this version")), "{file:?}: {errors:?}");
    }
}

#[test]
fn providers_of_models_are_asked_in_the_order_of_their_list() {
    use mapae_server::config::Provider;
    let a = "[ai.provider.a]\nurl = \"https://a.example/v1\"\nmodel = \"m\"\nkey = \"sk-1\"\n";
    let config = load(&format!("[ai]\nproviders = [\"a\", \"local\"]\n{a}")).unwrap();
    let [Provider::Remote(first), Provider::Local] = config.providers.as_slice() else {
        panic!("{:?}", config.providers)
    };
    assert!(first.redact && first.model == "m" && first.timeout.as_secs() == 60);
    assert!(!format!("{config:?}").contains("sk-1"));
    assert!(matches!(load("").unwrap().providers.as_slice(), [Provider::Local]));
    for (file, key) in [
        ("[ai]\nproviders = [\"b\"]\n", "ai.providers"),
        ("[ai]\nproviders = []\n", "ai.providers"),
        ("[ai]\nproviders = [\"a\", \"a\"]\n", "ai.providers"),
        ("[ai.provider.b]\nurl = \"https://b.example\"\n", "ai.provider.b.model"),
        ("[ai.provider.b]\nmodel = \"m\"\n", "ai.provider.b.url"),
        ("[ai.provider.b]\nmodel = \"m\"\nurl = \"ftp://x\"\n", "ai.provider.b.url"),
        ("[ai.provider.local]\nmodel = \"m\"\nurl = \"https://x\"\n", "ai.provider.local.url"),
        ("[ai.provider.b]\nmodel = \"m\"\nurl = \"https://x\"\nschema = \"loose\"\n", "ai.provider.b.schema"),
    ] {
        let errors = load(&format!("{file}{a}")).unwrap_err();
        assert!(errors.len() == 1 && errors[0].contains(key), "{file:?}: {errors:?}");
        assert!(!errors[0].contains("sk-1"));
    }
}

#[test]
fn what_is_written_when_a_job_ends_is_a_statement_for_postgresql() {
    let postgres = "[database]\nurl = \"postgres://localhost/x\"\n";
    let on = "[kind.\"a.b\".on]\nsucceeded = \"update x set y = :result where id = :params->>'id'\"\n\
              failed = { sql = \"update x set y = null\", kind = \"c\" }";
    let config = load(&format!("{postgres}{on}")).unwrap();
    let plan = config.kind_plans().into_iter().find(|plan| plan.kind.as_str() == "a.b").unwrap();
    let texts: Vec<&str> = plan.writes.values().map(String::as_str).collect();
    assert_eq!(texts, ["update x set y = $1 where id = $2->>'id'", "update x set y = null"]);
    assert_eq!(plan.on.len(), 1, "the job to make is made all the same");
    let errors = load(on).unwrap_err();
    assert!(errors.len() == 1 && errors[0].contains("only where database.url is PostgreSQL"), "{errors:?}");
    for wrong in [
        "succeeded = \"update x set y = :nothing\"",
        "done = \"update x set y = 1\"",
        "failed = \"\"",
        "failed = 1",
    ] {
        let errors = load(&format!("{postgres}[kind.a.on]\n{wrong}")).unwrap_err();
        assert!(errors.iter().all(|error| error.contains("kind.a.on")), "{errors:?}");
    }
    assert!(load("[kind.\"a.b\".on]\nsucceeded = { kind = \"c\" }").is_ok());
}

#[test]
fn who_is_told_of_events_is_known_by_name_or_by_address() {
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let one = load("[events]\nto = [\"valkey://mq/stream\", \"http://10.0.0.1/\"]").unwrap();
    let other = load("[events]\nto = [\"http://10.0.0.1/\"]").unwrap();
    let names = |config: &Config| -> Vec<String> {
        config.events.receivers.iter().map(|receiver| receiver.to.name.clone()).collect()
    };
    assert_eq!(names(&one)[1..], names(&other), "wherever it stands in the list");
    assert!(one.events.any() && !load("").unwrap().events.any());
    let rotated = ["https://u:one@h.example:8443/a?key=1", "https://u:two@h.example:8443/a?key=2#x"];
    let [before, after] = rotated.map(|url| load(&format!("[events]\nto = [\"{url}\"]")).unwrap());
    assert_eq!(names(&before), names(&after), "a password that changes makes no other receiver");
    let plain = load("[events]\nto = [\"https://h.example:8443/a\"]").unwrap();
    assert_eq!(names(&before), names(&plain));
    let former = |config: &Config| config.events.receivers[0].former.clone();
    assert!(former(&plain).is_none(), "its name is what it was");
    assert!(former(&before).is_some_and(|name| name != names(&before)[0]));
    let both = format!("[events]\nto = [\"{}\", \"{}\"]", rotated[0], rotated[1]);
    let errors = load(&both).unwrap_err();
    assert!(errors.len() == 1 && errors[0].contains("[receiver.NAME]"), "{errors:?}");
    assert!(!errors[0].contains("one@"), "{errors:?}");
    let taken = format!(
        "[events]\nto = [\"http://10.0.0.1/\"]\n[receiver.{}]\nurl = \"http://b/\"",
        names(&other)[0]
    );
    assert!(load(&taken).unwrap_err()[0].contains("give it another"));
    let file = format!(
        "[events]\nsecret = \"{secret}\"\n[receiver.a]\nurl = \"https://a.example/\"\nevents = [\"failed\"]"
    );
    let config = load(&file).unwrap();
    assert_eq!(names(&config), ["a"]);
    assert!(config.events.receivers[0].secrets.is_some());
    assert!(!format!("{config:?}").contains("MfKQ"));
    for (file, key) in [
        ("[events]\nto = [\"valkey://mq\"]", "events.to"),
        ("[events]\nto = [\"amqp://mq/exchange\"]", "events.to"),
        ("[events]\nto = \"nowhere\"", "events.to"),
        ("[events]\nsecret = \"hunter2\"", "events.secret"),
        ("[events]\ntimeout = \"31s\"", "events.timeout"),
        ("[receiver.a]\nevents = [\"failed\"]", "receiver.a.url"),
        ("[receiver.a]\nurl = \"ftp://a/\"", "receiver.a.url"),
        ("[receiver.\"a/b\"]\nurl = \"https://a/\"", "receiver.\"a/b\".url"),
        ("[receiver.a]\nurl = \"https://a/\"\nevents = [\"done\"]", "receiver.a.events"),
        ("[receiver.a]\nurl = \"https://a/\"\nkinds = [\"No Kind\"]", "receiver.a.kinds"),
        ("[callback]\nsecret = \"whsk_AAAA\"", "callback.secret"),
        ("[outgoing]\nallow = [\"10.0.0.0/99\"]", "outgoing.allow"),
    ] {
        let errors = load(file).unwrap_err();
        assert!(errors.iter().all(|error| error.contains(key)) && errors.len() == 1, "{file:?}: {errors:?}");
    }
}

#[test]
fn kinds_that_follow_each_other_in_a_circle_and_schedules_that_never_come_are_refused() {
    let circle = "[kind.a.on]\nfailed = { kind = \"b\" }\n[kind.b.on]\nfailed = { kind = \"a\" }";
    let errors = load(circle).unwrap_err();
    assert!(errors.iter().all(|error| error.contains("in a circle")), "{errors:?}");
    for (file, words) in [
        ("[schedule.s]\nkind = \"a\"\ncron = \"every day\"", "is no cron expression"),
        ("[schedule.s]\nkind = \"a\"\ncron = \"0 0 30 2 *\"", "never comes"),
        ("[schedule.s]\nkind = \"a\"\ncron = \"@daily\"\nzone = \"Mars/Base\"", "is no time zone"),
        ("[schedule.s]\nkind = \"a\"", "schedule.s.cron"),
        ("[schedule.s]\ncron = \"@daily\"", "schedule.s.kind"),
        ("[schedule.s]\nkind = \"a\"\ncron = \"@daily\"\nmissed = \"some\"", "schedule.s.missed"),
        ("[schedule.S]\nkind = \"a\"\ncron = \"@daily\"", "the name of a schedule"),
    ] {
        let errors = load(file).unwrap_err();
        assert!(errors.len() == 1 && errors[0].contains(words), "{file:?}: {errors:?}");
    }
    let config = load("[schedule.s]\nkind = \"a\"\ncron = \"@daily\"\n[kind.a]\nattempts = 9").unwrap();
    let plan = &config.schedules[0];
    assert_eq!((plan.next.retry.attempts, plan.owner.as_str(), plan.cron.zone()), (9, "system", "UTC"));
}

#[test]
fn limits_are_read_as_they_are_written_in_the_reference() {
    let config = load(
        r#"
        [resource]
        ai     = { concurrent = 8, rate = "300/min", burst = 20, scope = "global" }
        memory = "4GiB"
        vendor = { rate = "10/s" }
        [kind."document.analyze"]
        needs      = { memory = "64MiB + 8 * bytes", ai = 1 }
        concurrent = 20
        rate       = "100/min"
        per_owner  = { concurrent = 2, rate = "10/min" }
        "#,
    )
    .unwrap();
    let kind = &config.kinds.values().next().unwrap();
    assert_eq!((kind.whole.concurrent, kind.whole.rate.unwrap().starts), (Some(20), 100));
    assert_eq!((kind.per_owner.concurrent, kind.per_owner.rate.unwrap().starts), (Some(2), 10));
    let memory = kind.needs.get("memory").unwrap();
    assert_eq!((memory.base, memory.per_byte), (64 << 20, 8));
    assert_eq!((config.rates()["vendor"].starts, config.capacity().get("vendor")), (10, None));
    assert!(config.limits().resources().all(|(name, limit)| name == "ai" && limit.rate.unwrap().burst == 20));
}

#[test]
fn every_mistake_in_limits_is_told_at_once_with_the_nearest_name() {
    let nearest = load("[kind.b]\nper_ownr = { concurrent = 1 }").unwrap_err();
    assert!(nearest[0].contains("did you mean kind.b.per_owner?"), "{nearest:?}");
    let errors = load(
        r#"
        [resource]
        ai = { concurent = 8, scope = "global" }
        gpu = { concurrent = 8, scope = "everywhere" }
        disk = { burst = 3 }
        [kind.a]
        rate = "many"
        concurrent = 0
        needs = { memory = "8 * pages" }
        per_owner = { rat = "1/s" }
        "#,
    )
    .unwrap_err()
    .join("\n");
    for words in [
        "did you mean resource.ai.concurrent?",
        "resource.gpu (",
        "resource.disk (",
        "kind.a.rate (",
        "kind.a.concurrent (",
        "kind.a.needs (",
        "did you mean kind.a.per_owner.rate?",
    ] {
        assert!(errors.contains(words), "{words}: {errors}");
    }
}

#[test]
fn times_that_would_lose_live_leases_are_refused_with_the_arithmetic() {
    let errors = load("[worker]\nlease = \"10s\"\nheartbeat = \"3s\"").unwrap_err();
    assert!(errors[0].contains("10s") && errors[0].contains("12s"), "{errors:?}");
}

#[test]
fn a_kind_that_could_never_start_is_refused() {
    let errors =
        load("[kind.big]\nneeds = { memory = \"8GiB\" }\n[resource]\nmemory = \"4GiB\"").unwrap_err();
    assert!(errors[0].contains("big") && errors[0].contains("memory"), "{errors:?}");
    let global = "[kind.big]\nneeds = { ai = 9 }\n[resource]\nai = { concurrent = 8, scope = \"global\" }";
    assert!(load(global).unwrap_err()[0].contains("asks for 9 of ai"));
}

#[test]
fn a_secret_comes_from_a_file_and_is_shown_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("url");
    std::fs::write(&secret, "postgres://app:hunter2@db/jobs\n").unwrap();
    let settings = gather(&format!("[database]\nurl = {{ file = {secret:?} }}"), &[], &[]).unwrap();
    let config = Config::resolve(&settings).unwrap();
    assert_eq!(config.database.reveal(), "postgres://app:hunter2@db/jobs");

    let by_variable = gather("", &[("MAPAE_DATABASE_URL_FILE", secret.to_str().unwrap())], &[]).unwrap();
    assert_eq!(Config::resolve(&by_variable).unwrap().database, config.database);

    let direct = gather("[database]\nurl = \"postgres://app:hunter2@db/jobs\"", &[], &[]).unwrap();
    let broken = load("[database]\nurl = \"hunter2\"").unwrap_err();
    let syntax = load("[database]\nurl = \"postgres://app:hunter2@db/jobs").unwrap_err();
    assert!(syntax[0].contains("line 2"), "{syntax:?}");
    for text in [
        format!("{config:?}"),
        settings.print(),
        direct.print(),
        direct.explain("database.url").unwrap(),
        format!("{broken:?}{syntax:?}"),
    ] {
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[test]
fn what_could_not_work_of_a_handler_is_refused() {
    let handler = |lines: &str| load(&format!("[handler.x]\nurl = \"http://ai/\"\n{lines}"));
    for (lines, key) in [
        ("accepted = [503]", "handler.x.accepted"),
        ("secret = \"hunter2\"", "handler.x.secret"),
        ("secret = []", "handler.x.secret"),
        ("deadline = \"0s\"", "handler.x.deadline"),
        ("[handler.x.complete]\nkey = \"contextId\"", "handler.x.complete.key"),
        (
            "[handler.x.complete]\ncallback = { path = \"/hooks/a\", key = \"$.a\", status = \"$.b\" }",
            "handler.x.complete.key",
        ),
        (
            "[handler.x.complete]\nkey = \"params.a\"\ncallback = { path = \"/v1/jobs\", key = \"$.a\", status = \"$.b\" }",
            "handler.x.complete.callback",
        ),
    ] {
        let errors = handler(lines).unwrap_err();
        assert!(errors.iter().any(|error| error.contains(key)), "{lines:?}: {errors:?}");
        assert!(!format!("{errors:?}").contains("hunter2"));
    }
    let settings = gather(
        "[handler.x]\nurl = \"http://ai/\"\nsecret = [\"whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD\"]",
        &[],
        &[],
    );
    let settings = settings.unwrap();
    for shown in [settings.print(), settings.explain("handler.x.secret").unwrap()] {
        assert!(!shown.contains("C2FVs"), "{shown}");
    }
}

#[test]
fn a_file_asked_for_by_name_must_be_there() {
    let errors = Settings::gather(Some("/nowhere/mapae.toml".as_ref()), [], &[]).unwrap_err();
    assert!(errors[0].to_string().contains("/nowhere/mapae.toml"), "{errors:?}");
}

#[test]
fn what_config_print_writes_is_a_configuration_that_means_the_same() {
    let file = "[kind.\"a.b\"]\nneeds = { memory = \"1MiB\" }\n[worker]\nkinds = [\"a.*\"]";
    let settings = gather(file, &[("MAPAE_WORKER_SLOTS", "7")], &[]).unwrap();
    let again = gather(&settings.print(), &[], &[]).unwrap();
    let (first, second) = (Config::resolve(&settings).unwrap(), Config::resolve(&again).unwrap());
    assert_eq!(format!("{first:?}"), format!("{second:?}"));
}

#[test]
fn every_key_says_what_it_is_and_what_it_may_be() {
    for key in key::KEYS {
        assert!(key.about.ends_with('.') && !key.possible.is_empty(), "{}", key.path);
    }
}

#[test]
fn the_reference_page_of_the_keys_is_the_one_checked_in() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/configuration.md");
    let current = reference();
    if std::env::var_os("MAPAE_WRITE_REFERENCE").is_some() {
        std::fs::write(path, &current).unwrap();
    }
    let checked_in = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        checked_in == current,
        "the page is not what the code says: run the tests with MAPAE_WRITE_REFERENCE=1 and look at the difference"
    );
    for key in key::KEYS {
        assert!(!key.about.is_empty() && !key.possible.is_empty(), "{}", key.path);
    }
}

#[test]
fn a_need_of_a_resource_that_nobody_defines_is_told() {
    let config = load(
        "[kind.work]\nneeds = { gpu = 1, ai = 1 }\n[resource]\nai = 2\n[kind.\"document.analyze\"]\nattempts = 2",
    )
    .unwrap();
    let undefined: Vec<String> =
        config.undefined_needs().iter().map(|(kind, resource)| format!("{kind} {resource}")).collect();
    assert_eq!(undefined, ["work gpu"]);
}
