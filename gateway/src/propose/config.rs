//! What an operator chooses about proposals, checked before anything is read or opened.

use std::fmt;
use std::path::PathBuf;

use hyper::Uri;

use crate::source::git::url_without_credentials;

/// How verdicts become branches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposeConfig {
    /// Author and committer of every commit.
    pub author: Author,
    /// The Catalogue's path in the repository.
    pub catalogue: String,
    /// Where pull requests are opened; `None`: the branch is all.
    pub forge: Option<ForgeConfig>,
}

/// `Name <mail>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    /// Before the angle brackets.
    pub name: String,
    /// Between them.
    pub mail: String,
}

impl Author {
    /// Reads `Name <mail>`.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let fail = || format!("'{text}' is not of the form 'Name <mail@example.com>'");
        let (name, mail) =
            text.trim().strip_suffix('>').and_then(|text| text.split_once('<')).ok_or_else(fail)?;
        let (name, mail) = (name.trim(), mail.trim());
        let bad = |text: &str| text.contains(|c: char| c.is_control() || "<>".contains(c));
        // Git drops what it takes for crud at the ends; then our own commits would look foreign.
        let crud = |c: char| c.is_whitespace() || ".,:;<>\"\\'".contains(c);
        let ends = name.starts_with(crud) || name.ends_with(crud);
        let blank = name.is_empty() || mail.is_empty() || mail.contains(char::is_whitespace);
        if blank || ends || bad(name) || bad(mail) || mail.starts_with(crud) || mail.ends_with(crud)
        {
            return Err(fail());
        }
        Ok(Self { name: name.to_owned(), mail: mail.to_owned() })
    }
}

impl fmt::Display for Author {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} <{}>", self.name, self.mail)
    }
}

/// Whose API opens pull requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "lower")]
pub enum ForgeKind {
    /// GitHub, also Enterprise Server.
    GitHub,
    /// Gitea and Forgejo.
    Gitea,
    /// GitLab.
    GitLab,
}

/// A forge and how it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForgeConfig {
    /// Whose API.
    pub kind: ForgeKind,
    /// Where the API begins, without a slash at its end.
    pub api: String,
    /// `owner/name`; GitLab's may have more parts.
    pub repo: String,
    /// Holds the token, read again at each use.
    pub token_file: PathBuf,
}

impl ForgeConfig {
    /// `url` is where the forge is seen by people and `repo` the repository there; what is not
    /// given is taken from the remote.
    ///
    /// # Errors
    ///
    /// The flag to add or to mend, and why.
    pub fn resolve(
        kind: ForgeKind,
        token_file: PathBuf,
        url: Option<&str>,
        repo: Option<&str>,
        remote: &str,
    ) -> Result<Self, (&'static str, String)> {
        let found = remote_place(remote);
        let shown = url_without_credentials(remote);
        let repo = match (repo, &found) {
            (Some(repo), _) => repo.to_owned(),
            (None, Some((_, repo))) => repo.clone(),
            (None, None) => {
                return Err((
                    "--forge-repo",
                    format!("'{shown}' does not say it: give OWNER/NAME"),
                ));
            }
        };
        check_repo(kind, &repo).map_err(|why| ("--forge-repo", why))?;
        let url = match (url, &found) {
            (Some(url), _) => url.trim_end_matches('/').to_owned(),
            (None, Some((host, _))) => format!("https://{host}"),
            (None, None) => {
                return Err(("--forge-url", format!("'{shown}' does not say it: give its URL")));
            }
        };
        check_url(&url).map_err(|why| ("--forge-url", why))?;
        let api = match kind {
            ForgeKind::GitHub if url == "https://github.com" => "https://api.github.com".to_owned(),
            ForgeKind::GitHub => format!("{url}/api/v3"),
            ForgeKind::Gitea => format!("{url}/api/v1"),
            ForgeKind::GitLab => format!("{url}/api/v4"),
        };
        Ok(Self { kind, api, repo, token_file })
    }
}

/// Host and `owner/name` of a remote, where it names them.
fn remote_place(remote: &str) -> Option<(String, String)> {
    let (host, path) = match remote.split_once("://") {
        Some(("https" | "ssh", rest)) => rest.split_once('/')?,
        Some(_) => return None,
        None if remote.starts_with('/') => return None,
        // `user@host:path`
        None => remote.split_once(':')?,
    };
    let https = remote.starts_with("https://");
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    // The port of ssh says nothing about the port of the forge.
    let host = if https { host } else { host.split(':').next().unwrap_or(host) };
    let path = path.trim_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path);
    (!host.is_empty() && path.contains('/')).then(|| (host.to_owned(), path.to_owned()))
}

fn check_repo(kind: ForgeKind, repo: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let parts: Vec<&str> = repo.split('/').collect();
    let count = match kind {
        ForgeKind::GitHub | ForgeKind::Gitea => parts.len() == 2,
        ForgeKind::GitLab => (2..=20).contains(&parts.len()),
    };
    let good = |part: &&str| !part.is_empty() && !part.starts_with('.') && part.chars().all(fits);
    if count && parts.iter().all(good) {
        return Ok(());
    }
    Err(format!("'{repo}' is not OWNER/NAME"))
}

fn check_url(url: &str) -> Result<(), String> {
    let uri: Uri = url.parse().map_err(|error| format!("'{url}' is no URL: {error}"))?;
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(format!("'{url}' is no URL: give https://HOST"));
    };
    if authority.as_str().contains('@') || uri.query().is_some() {
        return Err("it may hold no credentials and no query: the token is read from \
                    --forge-token-file"
            .to_owned());
    }
    match scheme {
        "https" => Ok(()),
        // The token would go over the network for everybody to read.
        "http" if is_loopback(authority.host()) => Ok(()),
        _ => Err(format!("'{url}': only https, or http to this machine itself")),
    }
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_author_is_a_name_and_a_mail() {
        let author = Author::parse("Tidegate Bot <bot@example.com>").unwrap();
        assert_eq!((&*author.name, &*author.mail), ("Tidegate Bot", "bot@example.com"));
        assert_eq!(Author::parse(&author.to_string()), Ok(author));
        for bad in [
            "",
            "bot@example.com",
            "<bot@example.com>",
            "Bot <>",
            "Bot <a b>",
            "Bot <a>b>",
            "B\not <a@b>",
            "Bot. <a@b>",
            "Bot <a@b> x",
        ] {
            assert!(Author::parse(bad).is_err(), "{bad}");
        }
    }

    fn resolve(
        kind: ForgeKind,
        url: Option<&str>,
        repo: Option<&str>,
        remote: &str,
    ) -> Result<(String, String), &'static str> {
        ForgeConfig::resolve(kind, "token".into(), url, repo, remote)
            .map(|config| (config.api, config.repo))
            .map_err(|(flag, _)| flag)
    }

    #[test]
    fn forge_and_repository_are_found_in_the_remote() {
        let found = |kind, remote, api: &str, repo: &str| {
            let found = resolve(kind, None, None, remote);
            assert_eq!(found, Ok((api.to_owned(), repo.to_owned())), "{remote}");
        };
        let github = ForgeKind::GitHub;
        for remote in [
            "https://github.com/shop/estate.git",
            "https://x:secret@github.com/shop/estate",
            "git@github.com:shop/estate.git",
            "ssh://git@github.com:22/shop/estate.git",
        ] {
            found(github, remote, "https://api.github.com", "shop/estate");
        }
        found(github, "https://ghe.example.com/a/b", "https://ghe.example.com/api/v3", "a/b");
        let gitea = ForgeKind::Gitea;
        found(
            gitea,
            "https://g.example.com:3000/a/b.git",
            "https://g.example.com:3000/api/v1",
            "a/b",
        );
        let gitlab = ForgeKind::GitLab;
        found(gitlab, "git@gl.example.com:a/b/c.git", "https://gl.example.com/api/v4", "a/b/c");
    }

    #[test]
    fn what_the_remote_does_not_say_must_be_said() {
        let gitea = ForgeKind::Gitea;
        assert_eq!(resolve(gitea, None, None, "/srv/estate.git"), Err("--forge-repo"));
        assert_eq!(resolve(gitea, None, Some("a/b"), "file:///srv/e"), Err("--forge-url"));
        let api = "http://127.0.0.1:1/git/api/v1".to_owned();
        let local = resolve(gitea, Some("http://127.0.0.1:1/git/"), Some("a/b"), "/srv/estate.git");
        assert_eq!(local, Ok((api, "a/b".to_owned())));
        for url in ["http://example.com", "ftp://h", "h", "https://u:p@h", "https://h?x", ""] {
            assert_eq!(resolve(gitea, Some(url), Some("a/b"), ""), Err("--forge-url"), "{url}");
        }
        for repo in ["a", "a/b/c", "a/..", "a/b?c", "/b", "a/"] {
            let url = Some("https://h");
            assert_eq!(resolve(gitea, url, Some(repo), ""), Err("--forge-repo"), "{repo}");
        }
    }
}
