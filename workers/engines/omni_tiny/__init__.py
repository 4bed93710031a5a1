"""triptych-omni-tiny: a small any-to-any model of our own, on the handwritten digits inside scikit-learn.

A picture goes in as a few continuous rows (`vision`), the language model answers in text or in discrete picture codes
(`codes`), and a small diffusion transformer paints the codes (`dit`). It exists so that every step of the omni path has
a quality that can be measured. `train` makes the weights, `build` the folder that vLLM loads.
"""
