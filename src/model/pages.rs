//! Pages of the KV cache of a model.

use super::Inner;
use super::config::OfLayer;
use crate::kv::{KvHeads, PageLayout};

impl Inner {
    /// Layout of the KV cache's pages.
    pub(super) fn page_layout(&self) -> PageLayout {
        if let Some(layout) = &self.borrowed {
            return layout.clone();
        }
        let c = &self.config;
        // where nothing is cached, pages hold nothing
        let cached = c.cached_layers().filter(|_| !c.arch.attention.both_ways);
        let heads = cached.map(|layer| {
            let OfLayer { n_head_kv, head_dim, value_dim, .. } = c.layer(layer);
            let count = match c.latent {
                Some(latent) if latent.absorbed => 1,
                _ => n_head_kv,
            };
            KvHeads { count, key: head_dim, value: value_dim }
        });
        let of_switch = c.switched.as_ref().map(|s| KvHeads { count: 1, key: s.switch.head, value: s.switch.head });
        let layout = PageLayout::of_layers(of_switch.into_iter().chain(heads));
        let cached = layout.heads().count();
        let elsewhere = self.first_offloaded().map_or(0, |first| cached.saturating_sub(c.cached_before(first)));
        let state = c.mixing.state();
        let on_device = self.first_offloaded().map_or(0, |first| state - c.mixing.state_of(first.min(c.n_layer)));
        let layout = layout.with_types(self.cache, c.turns_quantized()).with_elsewhere(elsewhere);
        layout.with_state(state).with_state_elsewhere(on_device)
    }
}
