//! A protobuf `oneof` as a Rust enum.
//!
//! In JSON it is an object with exactly one of the known members. Unknown members are ignored, `null` counts as absent, and two
//! known members are an error.

macro_rules! oneof {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $( $(#[$vmeta:meta])* $variant:ident($ty:ty) = $camel:literal $(/ $snake:literal)? ),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        pub enum $name { $( $(#[$vmeta])* $variant($ty) ),+ }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap;
                let mut map = serializer.serialize_map(Some(1))?;
                match self { $( Self::$variant(value) => map.serialize_entry($camel, value)?, )+ }
                map.end()
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl<'de> serde::de::Visitor<'de> for Visitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!("an object with exactly one of:", $(" `", $camel, "`"),+))
                    }
                    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<$name, A::Error> {
                        use serde::de::Error;
                        use $crate::json::lenient::Object;
                        let mut found: Option<$name> = None;
                        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
                            let member = match &*key {
                                $( $camel $(| $snake)? => {
                                    map.next_value::<Option<Object<$ty>>>()?.map(|Object(member)| $name::$variant(member))
                                } )+
                                _ => { map.next_value::<serde::de::IgnoredAny>()?; None }
                            };
                            if let Some(member) = member && found.replace(member).is_some() {
                                return Err(A::Error::custom(concat!(
                                    "more than one member is set, expected exactly one of:", $(" `", $camel, "`"),+
                                )));
                            }
                        }
                        found.ok_or_else(|| A::Error::custom(concat!(
                            "no known member is set, expected exactly one of:", $(" `", $camel, "`"),+
                        )))
                    }
                }
                deserializer.deserialize_map(Visitor)
            }
        }
    };
}
