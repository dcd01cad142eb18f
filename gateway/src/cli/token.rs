//! `gateway token new`.

use clap::{Args, Subcommand};

use crate::tokens::new::Token;

/// Bearer tokens.
#[derive(Debug, Args)]
pub struct TokenArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: TokenCommand,
}

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Print a new token of 256 random bits, and the line for the file that --token-file names.
    New(NewArgs),
}

/// What the new token's line says.
#[derive(Debug, Args)]
pub struct NewArgs {
    /// The name that logs give it; no white space, not beginning with #.
    #[arg(long, value_name = "NAME", default_value = "collectors", value_parser = name)]
    pub name: String,
    /// An attribute that every agent under this token must report with exactly this value; may be
    /// given several times.
    #[arg(long, value_name = "ATTRIBUTE=VALUE", value_parser = pair)]
    pub require: Vec<(String, String)>,
}

impl NewArgs {
    /// The text to print: the token, then its line.
    ///
    /// # Errors
    ///
    /// When the operating system has no randomness to give.
    pub fn text(&self) -> Result<String, getrandom::Error> {
        let token = Token::generate()?;
        Ok(format!(
            "Token, for the collectors (it is not stored anywhere, and not shown again):\n  {}\n\
             Line for the token file:\n  {}\n",
            token.secret(),
            token.line(&self.name, &self.require),
        ))
    }
}

fn name(text: &str) -> Result<String, String> {
    let plain = !text.is_empty() && !text.starts_with('#') && !text.contains(unfit);
    plain
        .then(|| text.to_owned())
        .ok_or_else(|| "must be one word, not beginning with #".to_owned())
}

fn pair(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .filter(|(attribute, value)| !attribute.is_empty() && !value.is_empty())
        .filter(|_| !text.contains(unfit))
        .map(|(attribute, value)| (attribute.to_owned(), value.to_owned()))
        .ok_or_else(|| "must be attribute=value without white space".to_owned())
}

fn unfit(c: char) -> bool {
    c.is_whitespace() || c.is_control()
}
