//! What Google says to somebody who signs in with an account: renewals of the login, and who they are to it. The model is then
//! asked in another envelope (`v1internal`), and answers in one.

use serde_json::{Value, json};

/// The first part of the path of all that is asked in an account's name.
pub const ENVELOPE: &str = "v1internal";
/// What the user's login is renewed with.
pub const REFRESH_TOKEN: &str = "1//what-the-login-is-renewed-with";
/// What it is renewed to.
pub const RENEWED_TOKEN: &str = "ya29.the-renewed-token";
/// How long that is good for.
const RENEWED_SECONDS: u32 = 3599;

/// The login of somebody who last used the CLI long ago, as the CLI writes it.
pub fn expired_login() -> String {
    let login = json!({"access_token": "ya29.an-old-token", "refresh_token": REFRESH_TOKEN,
        "scope": "openid", "token_type": "Bearer", "expiry_date": 1_600_000_000_000_u64});
    format!("{login:#}")
}

/// The answer to what is no question to the model, if Google has one.
pub fn answer(path: &str, body: &[u8]) -> Option<(u16, Value)> {
    let whole = |body: Value| Some((200, body));
    match path {
        "/token" => {
            let is_known =
                form_urlencoded::parse(body).any(|(name, value)| name == "refresh_token" && value == REFRESH_TOKEN);
            if is_known {
                whole(json!({"access_token": RENEWED_TOKEN, "expires_in": RENEWED_SECONDS, "scope": "openid",
                    "token_type": "Bearer"}))
            } else {
                Some((400, json!({"error": "invalid_grant", "error_description": "Token has been revoked."})))
            }
        }
        "/tokeninfo" => whole(json!({"expires_in": RENEWED_SECONDS, "scope": "openid", "email": "me@example.org"})),
        "/oauth2/v2/userinfo" => whole(json!({"email": "me@example.org"})),
        "/v1internal:loadCodeAssist" => whole(json!({"currentTier": {"id": "standard-tier", "name": "Standard"},
            "cloudaicompanionProject": "of-the-stand-in"})),
        "/v1internal:streamGenerateContent" | "/v1internal:generateContent" | "/v1internal:countTokens" => None,
        path if path.starts_with("/v1internal") => whole(json!({})),
        _ => None,
    }
}
