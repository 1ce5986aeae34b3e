// What `rgen -m FILE -p PROMPT -n 0 --logits-sha256 | sha256sum` prints for bundled models.

export const PROMPT = "The game of chess is played by two";
export const PUBLISHED = {
    "trilm-wt-5.8m-F16.gguf": "da01c49d88fdd7aeea9af9f5d955833bc6a0826899f8a70a0a9fcd42c8b97aa2",
};
