import sys
import trine

model = trine.Model(sys.argv[1])
print(model.generate("The game of", 16, temperature=0))

logits = model.logits("The game of")  # NumPy, [tokens][n_vocab], the bits of llama.cpp's portable build
best = logits[-1].argsort()[-3:][::-1]
print([(model.detokenize([int(i)]), float(logits[-1, i])) for i in best])
print("tensors:", len(trine.inspect(sys.argv[1])["tensors"]))
