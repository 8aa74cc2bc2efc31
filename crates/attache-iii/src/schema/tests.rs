//! Tests of payload checks.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::*;

fn function(schema: Value) -> Arc<FunctionInfo> {
    Arc::new(FunctionInfo { request_format: Some(schema), ..FunctionInfo::new("a::b") })
}

async fn check(schema: Value, payload: Value) -> Result<(), String> {
    Schemas::default().check(&function(schema), &Json::new(&payload).unwrap()).await
}

fn quote() -> Value {
    json!({
        "type": "object",
        "required": ["sku"],
        "properties": {
            "sku": {"type": "string"},
            "lines": {"type": "array", "items": {"type": "object", "properties": {"quantity": {"type": "integer"}}}},
        },
    })
}

#[tokio::test]
async fn a_valid_payload_is_accepted() {
    assert_eq!(check(quote(), json!({"sku": "A-1", "lines": [{"quantity": 2}]})).await, Ok(()));
}

#[tokio::test]
async fn faults_of_a_payload_are_named() {
    assert_eq!(check(quote(), json!({})).await.unwrap_err(), "`payload`: \"sku\" is a required property");
    assert_eq!(
        check(quote(), json!({"sku": "A", "lines": [{"quantity": "two"}]})).await.unwrap_err(),
        "`payload.lines.0.quantity`: \"two\" is not of type \"integer\""
    );
}

#[tokio::test]
async fn an_invalid_schema_checks_nothing() {
    for schema in
        [json!({"type": 7}), json!("string"), json!(true), json!({"$ref": "http://example.invalid/x"})]
    {
        assert_eq!(check(schema, json!({"x": 1})).await, Ok(()));
    }
}

#[tokio::test]
async fn a_payload_that_cannot_be_parsed_is_refused() {
    let deep = Json::parse(&format!("{}{}", "[".repeat(200), "]".repeat(200))).unwrap();
    for payload in [deep, Json::parse("[1e999]").unwrap()] {
        let text = Schemas::default().check(&function(json!({"type": "array"})), &payload).await.unwrap_err();
        assert!(text.contains("cannot be parsed"), "{text}");
    }
}

#[tokio::test]
async fn a_replaced_function_is_checked_with_its_new_schema() {
    let schemas = Schemas::default();
    let payload = Json::new(&json!({"n": "x"})).unwrap();
    let of = |kind: &str| function(json!({"properties": {"n": {"type": kind}}}));
    assert!(schemas.check(&of("integer"), &payload).await.is_err());
    assert!(schemas.check(&of("string"), &payload).await.is_ok());
}

/// Schemas that each apply the next one twice.
fn doubled(levels: usize) -> Value {
    let mut defs = Map::new();
    for level in 0..levels {
        let next = json!({"$ref": format!("#/$defs/{}", level + 1)});
        defs.insert(level.to_string(), json!({"allOf": [next, next]}));
    }
    defs.insert(levels.to_string(), json!({"type": "integer"}));
    json!({"$ref": "#/$defs/0", "$defs": defs})
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(0), |inner, _| json!([inner]))
}

fn limits(steps: u64) -> Limits {
    Limits { steps, errors: MAX_ERRORS, time: Duration::from_secs(60), name_rate: 0 }
}

fn run(schema: &Value, payload: &Value, limits: Limits) -> Result<Result<(), String>, Exceeded> {
    Check::new(schema).expect("a schema").run(&Json::new(payload).unwrap(), limits)
}

#[tokio::test]
async fn of_millions_of_faults_the_first_is_reported_and_few_are_built() {
    let payload = format!("{{\"sku\":\"A\",\"lines\":[0{}]}}", ",0".repeat(3_900_000));
    let payload = Json::parse(&payload).unwrap();
    let outcome = Schemas::default().check(&function(quote()), &payload).await;
    assert_eq!(outcome.unwrap_err(), "`payload.lines.0`: 0 is not of type \"object\"");
}

#[tokio::test]
async fn five_faults_are_reported_and_no_more() {
    for (faults, reported) in [(5, 5), (6, 5)] {
        let text = check(json!({"items": {"type": "integer"}}), json!(vec!["x"; faults])).await.unwrap_err();
        assert_eq!(text.matches("is not of type").count(), reported, "{text}");
    }
}

#[test]
fn a_description_is_whole_up_to_its_limit() {
    assert_eq!(truncate(&"ä".repeat(MAX_FAULT), MAX_FAULT), "ä".repeat(400));
    assert_eq!(truncate(&"ä".repeat(MAX_FAULT + 1), MAX_FAULT), format!("{}…", "ä".repeat(400)));
}

#[test]
fn five_hundred_errors_are_built_and_no_more() {
    // Each alternative has one error for each item.
    let schema = json!({"anyOf": [{"items": {"type": "object"}}, {"items": {"type": "string"}}]});
    let is_listed = |items: usize, errors: u64| {
        let limits = Limits { errors, ..limits(MAX_STEPS) };
        let faults = run(&schema, &json!(vec![0; items]), limits).unwrap().unwrap_err();
        !faults.ends_with("in too many places to list")
    };
    let items = (1..1_000).take_while(|items| is_listed(*items, MAX_ERRORS)).last().unwrap();
    let needed = (1..=MAX_ERRORS).find(|errors| is_listed(items, *errors)).unwrap();
    assert!((490..=500).contains(&needed), "{needed} errors for {items} items");
    assert!(!is_listed(items, needed - 1) && !is_listed(items + 1, MAX_ERRORS));
}

#[tokio::test]
async fn faults_of_alternatives_are_not_all_built_either() {
    let schema = json!({"anyOf": [{"items": {"type": "object"}}, {"items": {"type": "string"}}]});
    let payload = Value::Array(vec![json!(0); 100_000]);
    let text = check(schema, payload).await.unwrap_err();
    assert_eq!(text, "`payload` does not match the schema, in too many places to list");
}

#[tokio::test]
async fn the_description_of_a_fault_is_short_for_long_values() {
    let long = "x".repeat(1_000_000);
    for (schema, payload) in [
        (json!({"type": "integer"}), json!(long)),
        (json!({"additionalProperties": false}), json!({long.as_str(): 1})),
        (json!({"additionalProperties": {"type": "null"}}), json!({long.as_str(): long})),
        (json!({"anyOf": [{"type": "null"}, {"minLength": 2_000_000}]}), json!(long)),
        (json!({"pattern": "^y"}), json!(long)),
        (json!({"enum": [long.clone()]}), json!("y")),
    ] {
        let text = check(schema, payload).await.unwrap_err();
        assert!(text.chars().count() <= MAX_FAULT * 2, "{} characters", text.chars().count());
    }
    assert_eq!(
        check(json!({"type": "integer"}), json!("x".repeat(101))).await.unwrap_err(),
        "`payload`: this is not of type \"integer\""
    );
}

#[tokio::test]
async fn a_schema_that_is_too_expensive_for_one_value_is_refused() {
    assert_eq!(check(doubled(7), json!("x")).await.unwrap_err().matches("is not of type").count(), 5);
    for schema in [doubled(14), doubled(40), doubled(5_000)] {
        let text = check(schema, json!(1)).await.unwrap_err();
        assert!(text.starts_with("its schema cannot be used: "), "{text}");
    }
}

#[tokio::test]
async fn a_check_ends_after_its_steps_for_any_schema() {
    // Each level is visited twice because of the level above.
    let twice = json!({"allOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]});
    assert_eq!(run(&twice, &nested(8), limits(100_000)), Ok(Ok(())));
    assert_eq!(run(&twice, &nested(90), limits(100)), Err(Exceeded));
    let again = json!({"$defs": {"a": {"anyOf": [{"items": {"$ref": "#/$defs/a"}, "maxItems": 0},
        {"items": {"$ref": "#/$defs/a"}, "minItems": 2}, {"type": "integer"}]}}, "$ref": "#/$defs/a"});
    let not_listed = "`payload` does not match the schema, in too many places to list";
    assert_eq!(run(&again, &nested(90), limits(10_000)), Ok(Err(not_listed.to_owned())));
}

#[test]
fn a_check_ends_after_its_time() {
    let limits = Limits { time: Duration::ZERO, ..limits(MAX_STEPS) };
    let payload = Value::Array(vec![json!(1); 10_000]);
    assert_eq!(run(&json!({"items": {"type": "integer"}}), &payload, limits), Err(Exceeded));
}

#[test]
fn steps_are_limited_to_the_last_one() {
    let (schema, payload) = (json!({"items": {"type": "integer"}}), Value::Array(vec![json!(1); 1_000]));
    let enough = (1..10_000).find(|steps| run(&schema, &payload, limits(*steps)).is_ok()).unwrap();
    assert!((1_000..5_000).contains(&enough), "{enough} steps for a thousand items");
}

#[tokio::test]
async fn unique_items_are_found_with_chosen_hashes() {
    let unique = json!({"uniqueItems": true});
    // The crate gives these items equal hashes.
    let alike: Vec<_> = (1..60).map(nested).collect();
    assert_eq!(check(unique.clone(), json!(alike)).await, Ok(()));
    for (items, are) in [
        (json!([1, 1.0]), false),
        (json!([9007199254740993_u64, 9007199254740992.0]), true),
        (json!([{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}]), false),
        (json!([0, -0.0]), false),
        (json!(["1", 1, true, null, [], {}]), true),
        (json!([[1], [1, 1], [1, 2]]), true),
        (json!([1e300, 1e300]), false),
    ] {
        assert_eq!(check(unique.clone(), items.clone()).await.is_ok(), are, "{items}");
        assert_eq!(jsonschema::is_valid(&unique, &items), are, "{items}");
    }
}

#[tokio::test]
async fn nesting_is_limited_so_that_the_stack_suffices() {
    for wrap in [
        |inner: Value| json!({"allOf": [inner]}),
        |inner| json!({"allOf": [true, inner]}),
        |inner| json!({"anyOf": [inner, false]}),
        |inner| json!({"oneOf": [false, inner]}),
        |inner| json!({"if": true, "then": inner}),
        |inner| json!({"not": {"not": inner}}),
        |inner| json!({"dependentSchemas": {"a": inner}, "$ref": "#/$defs/any"}),
    ] {
        // About twenty parts at each of about a hundred levels, and one level more.
        let mut schema =
            (0..19).fold(json!({"type": "array", "items": {"$ref": "#"}}), |inner, _| wrap(inner));
        schema["$defs"] = json!({"any": true});
        let depth = MAX_LEVELS / Bounds::of(&schema).expect("a schema").height;
        let outcome = check(schema.clone(), nested(depth)).await;
        assert!(outcome.is_ok() || outcome.is_err_and(|text| !text.contains("too deep")));
        let text = check(schema, nested(depth + 1)).await.unwrap_err();
        assert!(text.contains("nested too deep"), "{text}");
    }
}

#[tokio::test]
async fn patterns_are_matched_in_bounded_time() {
    // Exponential with backtracking, linear here.
    let text = format!("{}!", "a".repeat(5_000));
    let payload = json!({"a": text});
    let of = |pattern: &str| json!({"properties": {"a": {"pattern": pattern}}});
    assert!(check(of("^(a|a)*$"), payload.clone()).await.unwrap_err().contains("does not match"));
    // Look-around cannot be matched in linear time.
    let text = check(of("^(?=a)(a|a)*\\1?$"), payload.clone()).await.unwrap_err();
    assert!(text.contains("takes too long"), "{text}");
    let text = check(of("^(?=a)"), json!({"a": "a".repeat(8 * 1024 + 1)})).await.unwrap_err();
    assert!(text.contains("longer than"), "{text}");
    assert_eq!(check(of("^(?=a)"), json!({"a": "a".repeat(8 * 1024)})).await, Ok(()));
}

#[tokio::test]
async fn a_pattern_that_is_too_large_is_refused_and_an_invalid_one_is_not_used() {
    for pattern in ["(a{1000}){1000}".to_owned(), "x".repeat(4097)] {
        for schema in [json!({"pattern": pattern}), json!({"patternProperties": {pattern.as_str(): true}})] {
            assert!(rejection_reason(&schema).await.is_some());
            assert!(check(schema, json!("x")).await.is_err());
        }
    }
    // Each of them counts as 2 MiB.
    let pattern = |number: u64| format!("^\\p{{L}}{{1,40}}{number}$");
    let each = Pattern::new(&pattern(100)).map(|pattern| pattern.size()).expect("a pattern");
    let names = |count: u64| {
        let names = (100..100 + count).map(|number| (pattern(number), json!(true)));
        json!({"patternProperties": names.collect::<Map<_, _>>()})
    };
    let fit = MAX_PATTERNS / each;
    assert_eq!((fit, fit * each), (16, 33_554_432));
    assert_eq!(rejection_reason(&names(fit)).await, None);
    assert!(rejection_reason(&names(fit + 1)).await.is_some_and(|why| why.contains("33554432 bytes")));
    let schema = json!({"pattern": "x".repeat(4096)});
    assert_eq!((rejection_reason(&schema).await, check(schema, json!("y")).await.is_err()), (None, true));
    let none = json!({"pattern": "(", "type": "integer"});
    assert_eq!((rejection_reason(&none).await, check(none, json!("x")).await), (None, Ok(())));
}

#[tokio::test]
async fn names_are_matched_with_patterns_in_bounded_time() {
    let schema = json!({"patternProperties": {"^[01]*1[01]{200}$": {"type": "integer"}}});
    let check = Check::new(&schema).expect("a schema");
    let of = |length: usize| Json::new(&json!({"1".repeat(length): "x"})).unwrap();
    assert!(check.run(&of(300), check.limits(MAX_TIME)).unwrap().is_err());
    assert_eq!(check.run(&of(8_000_000), check.limits(MAX_TIME)), Err(Exceeded));
}

#[tokio::test]
async fn schemas_of_common_tools_are_used() {
    // Pydantic, zod, TypeBox, and a filter that refers to itself in several ways.
    let email =
        r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$";
    for (schema, right, wrong) in [
        (
            json!({"$defs": {"Line": {"properties": {"sku": {"type": "string"}}, "required": ["sku"], "type": "object"}},
                "properties": {"lines": {"items": {"$ref": "#/$defs/Line"}, "type": "array"},
                    "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null}},
                "required": ["lines"], "title": "Order", "type": "object"}),
            json!({"lines": [{"sku": "A"}], "note": null}),
            json!({"lines": [{"sku": "A"}, {}]}),
        ),
        (
            json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
                "properties": {"email": {"type": "string", "format": "email", "pattern": email}},
                "required": ["email"], "additionalProperties": false}),
            json!({"email": "someone@example.com"}),
            json!({"email": "some..one@example.com"}),
        ),
        (
            json!({"$id": "T0", "type": "object", "properties": {"nodes": {"type": "array", "items": {"$ref": "T0"}},
                "id": {"type": "string"}}, "required": ["nodes"]}),
            json!({"nodes": [{"nodes": []}]}),
            json!({"nodes": [{"nodes": [{"nodes": 1}]}]}),
        ),
        (
            json!({"$defs": {"filter": {"oneOf": [
                {"type": "object", "properties": {"and": {"type": "array", "items": {"$ref": "#/$defs/filter"}}}, "required": ["and"]},
                {"type": "object", "properties": {"or": {"type": "array", "items": {"$ref": "#/$defs/filter"}}}, "required": ["or"]},
                {"type": "object", "properties": {"not": {"$ref": "#/$defs/filter"}}, "required": ["not"]},
                {"type": "object", "properties": {"field": {"type": "string"}}, "required": ["field"]}]}},
                "$ref": "#/$defs/filter"}),
            json!({"and": [{"not": {"or": [{"field": "a"}, {"not": {"field": "b"}}]}}, {"field": "c"}]}),
            json!({"and": [{"not": {"or": [{"field": "a"}, {"not": {"field": 1}}]}}]}),
        ),
        (
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"n": {"type": "integer"}},
                "items": [{"$ref": "#/definitions/n"}], "additionalItems": false}),
            json!([1]),
            json!([1, 2]),
        ),
    ] {
        assert_eq!(rejection_reason(&schema).await, None);
        assert_eq!(check(schema.clone(), right).await, Ok(()), "{schema}");
        assert!(check(schema.clone(), wrong).await.is_err(), "{schema}");
    }
}

#[test]
fn a_schema_is_compiled_on_a_runtime_thread_up_to_8_kib_with_one_pattern() {
    // Eight bytes for each value, and those of the names and texts.
    let text = |bytes: usize| json!({"title": "x".repeat(bytes - 2 * 8 - "title".len())});
    assert_eq!((is_small(&text(8 * 1024)), is_small(&text(8 * 1024 + 1))), (true, false));
    let patterns = |count: usize| vec![json!({"pattern": "^a"}); count];
    assert!(is_small(&json!({"prefixItems": patterns(1)})));
    assert!(!is_small(&json!({"prefixItems": patterns(2)})));
}

#[test]
fn a_payload_is_checked_on_a_runtime_thread_up_to_16_kib_100_levels_and_a_cost_of_500() {
    let is_inline = |schema: Value, payload: &str| {
        let schema = CompiledSchema::new(&schema, "f");
        assert!(matches!(schema, CompiledSchema::Checked(_)));
        schema.check_inline(&Json::parse(payload).unwrap()).is_some()
    };
    let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    let string = || json!({"type": "string"});
    assert_eq!(
        (is_inline(string(), &text(16 * 1024)), is_inline(string(), &text(16 * 1024 + 1))),
        (true, false)
    );
    // A schema of one level, so that the levels of the payload count.
    let levels = |count: usize| nested(count).to_string();
    let array = || json!({"type": "array"});
    assert_eq!((is_inline(array(), &levels(100)), is_inline(array(), &levels(101))), (true, false));
    let costs = |cost: u64| json!({"enum": (0..cost - 1).collect::<Vec<_>>()});
    assert_eq!((is_inline(costs(500), "0"), is_inline(costs(501), "0")), (true, false));
}

#[test]
fn a_check_on_a_runtime_thread_ends_after_50_000_steps() {
    let items = json!({"items": {"allOf": vec![json!({"type": "integer"}); 20]}});
    let schema = CompiledSchema::new(&items, "f");
    let payload = |items: usize| Json::new(&vec![1; items]).unwrap();
    let needs = |items_given: usize| {
        let value = json!(vec![1; items_given]);
        let fits = |steps: u64| run(&items, &value, limits(steps)).is_ok();
        (1..100_000).find(|steps| fits(*steps)).unwrap()
    };
    // Every item costs the same number of steps.
    let (first, second) = (needs(1), needs(2));
    let most = usize::try_from(1 + (50_000 - first) / (second - first)).unwrap();
    assert!(payload(most + 1).as_str().len() <= SMALL, "{most} items");
    // On a busy machine the time can be over before the steps.
    assert!((0..100).any(|_| schema.check_inline(&payload(most)).is_some()));
    assert!(schema.check_inline(&payload(most + 1)).is_none());
}

#[tokio::test]
async fn as_many_checks_run_at_once_as_there_are_processors_and_at_most_four() {
    let limit = std::thread::available_parallelism().map_or(1, usize::from).min(4);
    let running = Arc::new(AtomicUsize::new(0));
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let checks: Vec<_> = (0..limit + 1)
        .map(|_| {
            let (running, gate) = (running.clone(), gate.clone());
            tokio::spawn(run_on_thread(move || {
                let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                // Ends when the sender is dropped.
                let _ = gate.lock().recv();
                running.fetch_sub(1, Ordering::SeqCst);
                now
            }))
        })
        .collect();
    // Other tests use the threads too, and give them back.
    while running.load(Ordering::SeqCst) < limit {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(running.load(Ordering::SeqCst), limit, "the others wait");
    drop(open);
    for check in checks {
        assert!(check.await.unwrap().expect("a thread") <= limit);
    }
}

#[tokio::test]
async fn the_cache_of_schemas_is_limited() {
    let schemas = Schemas::default();
    for number in 0..MAX_CACHED + 2 {
        let id = format!("f::{number}");
        let function = FunctionInfo { request_format: Some(json!({})), ..FunctionInfo::new(id) };
        schemas.check(&Arc::new(function), &Json::new(&1).unwrap()).await.unwrap();
    }
    assert_eq!(schemas.0.lock().len(), MAX_CACHED);
}

mod same_as_without_limits {
    use proptest::prelude::*;

    use super::*;

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-3_i64..4).prop_map(Value::from),
            prop_oneof![Just(0.5), Just(2.0), Just(1e300)].prop_map(Value::from),
            "[ab]{0,4}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[abc]{1,2}", inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    fn schemas() -> Vec<Value> {
        vec![
            json!({"type": ["object", "array"], "properties": {"a": {"type": "integer"}, "b": {"$ref": "#"}}}),
            json!({"items": {"anyOf": [{"type": "integer", "minimum": 0}, {"minLength": 2}, {"$ref": "#"}]}}),
            json!({"uniqueItems": true, "contains": {"type": "null"}, "minContains": 1, "maxItems": 3}),
            json!({"patternProperties": {"^a": {"type": "string", "pattern": "b$"}}, "additionalProperties": {"type": "number"}}),
            json!({"allOf": [{"properties": {"a": true}}], "unevaluatedProperties": false}),
            json!({"prefixItems": [{"const": 1}, {"enum": ["a", null, [1], {"a": 0.5}]}], "unevaluatedItems": {"type": "string"}}),
            json!({"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {"maxProperties": 1}}),
            json!({"propertyNames": {"pattern": "^[ab]+$"}, "dependentRequired": {"a": ["b"]}, "not": {"minProperties": 3}}),
            json!({"oneOf": [{"multipleOf": 2}, {"exclusiveMaximum": 0}, {"type": "string", "maxLength": 1}]}),
            json!({"dependentSchemas": {"a": {"properties": {"b": {"type": "array"}}}}, "minProperties": 1}),
        ]
    }

    proptest! {
        #[test]
        fn limits_do_not_change_the_result_for_any_payload(payload in any_json()) {
            for schema in schemas() {
                let judged = run(&schema, &payload, limits(MAX_STEPS)).unwrap();
                prop_assert_eq!(judged.is_ok(), jsonschema::is_valid(&schema, &payload), "{}", schema);
            }
        }
    }
}
