//! Latent attention, as the metadata states it.

use super::keys::Keys;
use crate::arch::rules::Mixing;
use crate::arch::{Arch, Latent};

/// Largest size of a head.
const MOST: u32 = 1 << 20;

/// Elements of the keys and values that the cache holds, and latent attention where the architecture has it.
pub fn heads(
    k: &mut Keys<'_>,
    arch: &Arch,
    n_embd: usize,
    n_head: usize,
    n_head_kv: usize,
) -> ([usize; 2], Option<Latent>) {
    let usual = match k.u32("attention.key_length") {
        Some(n) => n as usize,
        None if n_embd.is_multiple_of(n_head) => n_embd / n_head,
        None => {
            k.contradiction(format!("{n_head} heads do not divide the embedding width {n_embd}"));
            2
        }
    };
    // the other's number is no hint
    let value = match k.u32("attention.value_length") {
        Some(n) => n as usize,
        None if arch.attention.values_apart => n_embd / n_head,
        None if arch.attention.latent && n_embd.is_multiple_of(n_head) => n_embd / n_head,
        None => usual,
    };
    if arch.attention.latent {
        return latent(k, arch, [usual, value], n_head == n_head_kv);
    }
    if arch.attention.values_apart && (1..=MOST as usize).contains(&value) {
        return ([usual, value], None);
    }
    if value != usual {
        k.contradiction(format!(
            "heads have {usual} key and {value} value elements, which models of architecture {} cannot have",
            arch.name
        ));
    }
    ([usual, usual], None)
}

fn latent(k: &mut Keys<'_>, arch: &Arch, stated: [usize; 2], own_keys: bool) -> ([usize; 2], Option<Latent>) {
    const OF_HEAD: [&str; 2] = ["attention.key_length_mla", "attention.value_length_mla"];
    let of_head = OF_HEAD.map(|key| k.u32(key).unwrap_or(0).min(MOST) as usize);
    let rank = k.count("attention.kv_lora_rank", MOST);
    let rope = k.u32("rope.dimension_count").map(|n| n.min(MOST) as usize);
    let absorbed = of_head != [0, 0];
    let [key, value] = if absorbed { of_head } else { stated };
    let rope = rope.unwrap_or(stated[0]);
    if rope > key || value == 0 {
        let [key, value] = OF_HEAD.map(|key| k.name(key));
        k.contradiction(format!(
            "{key} and {value} are {of_head:?}: there must be both or none, and {rope} elements of a key are turned by RoPE"
        ));
    }
    if !absorbed && !own_keys {
        k.wrong(
            "attention.head_count_kv",
            "differs from the number of query heads, and every head has keys of its own",
        );
    }
    let latent = Latent {
        query_rank: k.u32("attention.q_lora_rank").unwrap_or(0).min(MOST) as usize,
        rank,
        key,
        value,
        rope: rope.min(key),
        absorbed,
    };
    for (own, shared) in [
        ("attention.key_length_mla_swa", key),
        ("attention.value_length_mla_swa", value),
        ("attention.kv_lora_rank_swa", rank),
    ] {
        if let Some(n) = k.u32(own).filter(|&n| n > 0 && n as usize != shared) {
            k.wrong(own, format!("is {n}, and {shared} in other layers, which is not supported"));
        }
    }
    let cached = match absorbed {
        true => [rank + latent.rope, rank],
        false => [key, value],
    };
    // files of models with recurrent blocks have another length of values, which nothing reads
    let read = if matches!(arch.mixing, Mixing::ByHeads(_)) { 1 } else { 2 };
    if absorbed && stated[..read] != cached[..read] {
        k.wrong(
            "attention.key_length",
            format!("and the length of values are {stated:?}, and the cache holds {cached:?} elements"),
        );
    }
    (cached, Some(latent))
}
