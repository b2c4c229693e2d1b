//! What a council has on its run: read at the start of an attempt, written as it comes.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    data::{Ended, Key, Layout, PREFIX, Reply, RoundEnd, RoundStart, Status},
    transcript::REPLIES_MAX,
};
use crate::nodes::{NodeCtx, Report};

/// The documents of one visit.
#[derive(Debug, Default)]
pub(super) struct Kept {
    visit: u32,
    /// Where the council lies.
    pub(super) layout: Option<Layout>,
    /// By round.
    pub(super) starts: BTreeMap<u32, RoundStart>,
    /// By round and member.
    pub(super) replies: BTreeMap<u32, BTreeMap<String, Reply>>,
    /// By round.
    pub(super) ends: BTreeMap<u32, RoundEnd>,
    /// How an earlier attempt ended.
    pub(super) ended: Option<Ended>,
    /// US dollars by member, cut-off turns included.
    pub(super) spent: BTreeMap<String, f64>,
    texts: Texts,
    /// The visit before, and where it lies.
    pub(super) former: Option<(u32, Layout)>,
}

/// Whole replies, the newest as far as there is room.
#[derive(Debug, Default)]
struct Texts {
    kept: BTreeMap<(u32, String), String>,
    bytes: usize,
}

impl Texts {
    fn put(&mut self, round: u32, member: &str, text: String) {
        self.bytes += text.len();
        self.kept.insert((round, member.to_owned()), text);
        while self.bytes > REPLIES_MAX
            && let Some((_, oldest)) = self.kept.pop_first()
        {
            self.bytes -= oldest.len();
        }
    }
}

impl Kept {
    /// What earlier attempts of this visit left, and where the visit before was.
    pub(super) fn of(visit: u32, parts: &BTreeMap<String, (Value, Option<String>)>) -> Self {
        let mut kept = Self { visit, ..Self::default() };
        for (key, (data, text)) in parts {
            let Some(rest) = key.strip_prefix(PREFIX) else { continue };
            let mut words = rest.split(':');
            let Some(of) = words.next().and_then(|of| of.parse::<u32>().ok()) else { continue };
            let words: Vec<&str> = words.collect();
            if of != visit {
                // Keys are not in the order of numbers.
                let later = kept.former.as_ref().is_none_or(|(seen, _): &(u32, Layout)| *seen < of);
                if of < visit && words == ["layout"] && later {
                    kept.former = doc(data).map(|layout| (of, layout));
                }
                continue;
            }
            match words.as_slice() {
                ["layout"] => kept.layout = doc(data),
                ["ended"] => kept.ended = doc(data),
                ["start", _] => kept.starts.extend(doc(data).map(|start: RoundStart| (start.round, start))),
                ["end", _] => kept.ends.extend(doc(data).map(|end: RoundEnd| (end.round, end))),
                ["spent", member] => {
                    let usd = data.get("usd").and_then(Value::as_f64).unwrap_or(0.0);
                    kept.spent.insert((*member).to_owned(), usd);
                }
                ["reply", _, _] => {
                    let Some(reply) = doc::<Reply>(data) else { continue };
                    let text = text.clone().unwrap_or_else(|| reply.tail.clone());
                    kept.texts.put(reply.round, &reply.agent, text);
                    kept.replies.entry(reply.round).or_default().insert(reply.agent.clone(), reply);
                }
                _ => {}
            }
        }
        kept
    }

    /// The round to go on with, and whether it has begun.
    pub(super) fn next(&self) -> (u32, bool) {
        let begun = self.starts.keys().next_back().copied().unwrap_or(0);
        if begun > 0 && !self.ends.contains_key(&begun) { (begun, true) } else { (begun + 1, false) }
    }

    /// Rounds that ended.
    pub(super) fn rounds(&self) -> u32 {
        self.ends.keys().next_back().copied().unwrap_or(0)
    }

    /// How many of the last rounds nobody answered in.
    pub(super) fn silent(&self) -> usize {
        self.ends.values().rev().take_while(|end| !end.replied).count()
    }

    /// The whole reply, or its end.
    pub(super) fn text(&self, round: u32, member: &str) -> &str {
        let text = self.texts.kept.get(&(round, member.to_owned())).map(String::as_str);
        text.or_else(|| Some(self.replies.get(&round)?.get(member)?.tail.as_str())).unwrap_or_default()
    }

    async fn part(&self, ctx: &NodeCtx, key: Key<'_>, data: Value, text: Option<String>) {
        ctx.report.send(Report::Part { key: key.of(self.visit), data, text }).await;
    }

    /// Writes where the council lies.
    pub(super) async fn write_layout(&mut self, ctx: &NodeCtx, layout: &Layout) {
        self.part(ctx, Key::Layout, json!(layout), None).await;
        self.layout = Some(layout.clone());
    }

    /// Writes what a round begins at.
    pub(super) async fn write_start(&mut self, ctx: &NodeCtx, start: RoundStart) {
        self.part(ctx, Key::Start(start.round), json!(start), None).await;
        self.starts.insert(start.round, start);
    }

    /// Writes what a member gave.
    pub(super) async fn write_reply(&mut self, ctx: &NodeCtx, reply: Reply, text: String) {
        let key = Key::Reply(reply.round, &reply.agent);
        self.part(ctx, key, json!(reply), Some(text.clone())).await;
        self.texts.put(reply.round, &reply.agent, text);
        self.replies.entry(reply.round).or_default().insert(reply.agent.clone(), reply);
    }

    /// Writes what a round came to.
    pub(super) async fn write_end(&mut self, ctx: &NodeCtx, end: RoundEnd) {
        self.part(ctx, Key::End(end.round), json!(end), None).await;
        self.ends.insert(end.round, end);
    }

    /// Writes how the rounds ended.
    pub(super) async fn write_ended(&mut self, ctx: &NodeCtx, ended: Ended) {
        self.part(ctx, Key::Ended, json!(ended), None).await;
        self.ended = Some(ended);
    }

    /// Takes the word of an attempt that failed back, since this one goes on.
    pub(super) async fn reopen(&mut self, ctx: &NodeCtx) {
        if self.ended.is_some() {
            let ended = Ended { status: Status::Running, rounds: self.rounds(), at: ctx.now(), ..Ended::default() };
            self.write_ended(ctx, ended).await;
            self.ended = None;
        }
    }
}

fn doc<T: DeserializeOwned>(data: &Value) -> Option<T> {
    T::deserialize(data).ok()
}

/// Writes what a member has spent in all.
pub(super) async fn write_spent(ctx: &NodeCtx, member: &str, usd: f64) {
    let key = Key::Spent(member).of(ctx.attempt.visit);
    ctx.report.send(Report::Part { key, data: json!({ "usd": usd }), text: None }).await;
}

/// Keeps the patch of a merge that was taken out of a worktree.
pub(super) async fn write_saved(ctx: &NodeCtx, round: u32, member: &str, text: String) {
    let key = Key::Saved(round, member).of(ctx.attempt.visit);
    ctx.report.send(Report::Part { key, data: json!({ "bytes": text.len() }), text: Some(text) }).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(of: Vec<(String, Value, Option<&str>)>) -> BTreeMap<String, (Value, Option<String>)> {
        of.into_iter().map(|(key, data, text)| (key, (data, text.map(str::to_owned)))).collect()
    }

    #[test]
    fn the_unfinished_round_is_found() {
        let start = |round| json!(RoundStart { round, ..RoundStart::default() });
        let end = |round, replied| json!(RoundEnd { round, replied, ..RoundEnd::default() });
        let reply = Reply { round: 2, agent: "A".into(), tail: "end".into(), ..Reply::default() };
        let mut all = parts(vec![
            (Key::Start(1).of(1), start(1), None),
            (Key::End(1).of(1), end(1, false), None),
            (Key::Start(2).of(1), start(2), None),
            (Key::Reply(2, "A").of(1), json!(reply), Some("the whole to its end")),
            (Key::Spent("A").of(1), json!({ "usd": 0.5 }), None),
            ("quota:A".into(), json!({}), None),
        ]);
        let kept = Kept::of(1, &all);
        assert_eq!((kept.next(), kept.rounds(), kept.silent()), ((2, true), 1, 1));
        assert_eq!((kept.text(2, "A"), kept.text(2, "B"), kept.spent["A"]), ("the whole to its end", "", 0.5));
        all.insert(Key::End(2).of(1), (end(2, true), None));
        let kept = Kept::of(1, &all);
        assert_eq!((kept.next(), kept.silent()), ((3, false), 0));
        assert_eq!(Kept::of(1, &BTreeMap::new()).next(), (1, false));
    }

    #[test]
    fn of_earlier_visits_the_last_place_counts() {
        let layout = |name: &str| json!(Layout { short_id: name.into(), ..Layout::default() });
        let all = parts(vec![
            (Key::Layout.of(2), layout("two"), None),
            (Key::Layout.of(9), layout("nine"), None),
            (Key::Layout.of(10), layout("ten"), None),
            (Key::Start(1).of(10), json!(RoundStart { round: 1, ..RoundStart::default() }), None),
        ]);
        let kept = Kept::of(11, &all);
        assert_eq!(kept.former.map(|(visit, layout)| (visit, layout.short_id)), Some((10, "ten".into())));
        assert!(kept.layout.is_none() && kept.starts.is_empty());
        assert_eq!(Kept::of(10, &all).former.map(|(visit, _)| visit), Some(9));
        assert!(Kept::of(2, &all).former.is_none());
    }

    #[test]
    fn old_texts_make_room_for_new_ones() {
        let mut texts = Texts::default();
        for round in 1..=3 {
            texts.put(round, "A", "x".repeat(REPLIES_MAX / 2));
        }
        assert_eq!(texts.kept.keys().map(|(round, _)| *round).collect::<Vec<_>>(), [2, 3]);
    }
}
