"""Keras code of a person's own on TensorFlow's replicas: the numbers of the same cell without us."""

from __future__ import annotations

from typing import NamedTuple

import pytest

pytest_plugins = ("tests.support.keras_kernels",)
CLOSE = 1e-3  # relative; float32 after a few steps, where the faults were factors of 2 and more


class Program(NamedTuple):
    """A cell that leaves numbers in `result`, and what must be said of it."""

    code: str
    before: str = ""
    whole: str = ""  # what the report says of a model whose batches are not split
    said: str = ""
    after: str = ""


_BUILD = """
def build(*inner, width=8):
    keras.utils.set_random_seed(3)
    return keras.Sequential([layers.Input((width,)), layers.Dense(6, activation="tanh"), *inner,
                             layers.Dense(1)])
def train(model, rows=66, **options):
    options = {"batch_size": 16, "epochs": 2, "verbose": 0, "shuffle": False, **options}
    return model.fit(x[:rows], y[:rows], **options).history["loss"]
"""
_STEPS = """
import tensorflow as tf
class Own(keras.Model):
    def __init__(self, reduce):
        super().__init__()
        self.body, self.reduce = build(), reduce
        self.mean = keras.metrics.Mean(name="mean")
    def train_step(self, data):
        rows, labels = data
        with tf.GradientTape() as tape:
            loss = self.reduce(tf.square(self.body(rows) - labels))
        gradients = tape.gradient(loss, self.body.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.body.trainable_weights))
        self.mean.update_state(loss)
        return {"loss": self.mean.result()}
"""
_LOOP = """
import tensorflow as tf
model, optimizer, mean = build(), keras.optimizers.Adam(0.01), keras.metrics.Mean()
def step(rows, labels):
    with tf.GradientTape() as tape:
        loss = keras.losses.MeanSquaredError()(labels, model(rows, training=True))
    gradients = tape.gradient(loss, model.trainable_weights)
    optimizer.apply_gradients(zip(gradients, model.trainable_weights))
    mean.update_state(loss)
    return float(loss)
def loop(step=step):
    return [step(x[at:at + 16], y[at:at + 16]) for at in range(0, 66, 16)]
"""
PROGRAMS = {
    "a mean over rows in a train_step": Program(
        """
model = Own(tf.reduce_mean)
model.compile(keras.optimizers.SGD(0.05))
result = [train(model), *model.body.get_weights()]
""",
        before=_STEPS,
    ),
    "a sum over rows in a train_step": Program(
        """
model = Own(tf.reduce_sum)
model.compile(keras.optimizers.SGD(0.002))
result = [train(model), *model.body.get_weights()]
""",
        before=_STEPS,
        whole="its gradient",
    ),
    "two optimizers that the step meets unbuilt": Program(
        """
class Pair(keras.Model):
    def __init__(self):
        super().__init__()
        self.one, self.other = build(), build(width=1)
    def compile(self, one, other):
        super().compile()
        self.for_one, self.for_other = one, other
    def train_step(self, data):
        rows, labels = data
        with tf.GradientTape(persistent=True) as tape:
            middle = self.one(rows)
            first = tf.reduce_mean(tf.square(middle - labels))
            second = tf.reduce_mean(tf.abs(self.other(middle) - labels))
        for loss, part, optimizer in ((first, self.one, self.for_one),
                                      (second, self.other, self.for_other)):
            gradients = tape.gradient(loss, part.trainable_weights)
            optimizer.apply_gradients(zip(gradients, part.trainable_weights))
        return {"loss": first}
model = Pair()
model.compile(keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.01))
result = [train(model), *model.get_weights()]
""",
        before="import tensorflow as tf",
    ),
    "a loss function that is a root of the whole": Program(
        """
model = build()
model.compile("sgd", lambda t, p: keras.ops.sqrt(keras.ops.mean(keras.ops.square(t - p))))
result = [train(model, validation_data=(x[:21], y[:21]))[1:], *model.get_weights()]
""",
        whole="its gradient",
    ),
    "losses of Keras's in which rows meet": Program(
        """
model = build(layers.Dense(1, activation="sigmoid"))
model.compile(keras.optimizers.SGD(0.1), keras.losses.Dice())
y = (y > 0).astype("float32")
result = [train(model), *model.get_weights()]
""",
        whole="its gradient",
    ),
    "a layer that adds the sum over its rows": Program(
        """
class Adds(layers.Layer):
    def call(self, values):
        self.add_loss(0.01 * keras.ops.sum(keras.ops.square(values)))
        return values
model = build(Adds())
model.compile("sgd", "mse")
result = [train(model), *model.get_weights()]
""",
        whole="its gradient",
    ),
    "predictions that depend on the other rows": Program(
        """
class Center(layers.Layer):
    def call(self, values):
        return values - keras.ops.mean(values, axis=0, keepdims=True)
model = build(Center())
result = [model.predict(x, batch_size=16, verbose=0), model.predict_on_batch(x[:8])]
model.compile("sgd", "mse", steps_per_execution=2)
result += [model.predict(x[:64], batch_size=16, verbose=0), train(model, 64)]
""",
        whole="what it predicts for a row",
    ),
    "predictions of batches of one size": Program(
        """
keras.utils.set_random_seed(3)
model = keras.Sequential([layers.Input((4, 2), batch_size=16), layers.LSTM(3, stateful=True)])
result = [model.predict(x[:64].reshape(64, 4, 2), batch_size=16, verbose=0),
          model.predict_on_batch(x[:16].reshape(16, 4, 2))]
""",
        whole="a fixed number of rows",
    ),
    "a layer of one's own": Program("""
class Scale(layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")
    def call(self, values):
        return values * self.scale
model = build(Scale(), layers.BatchNormalization(momentum=0.5, synchronized=True))
model.compile("sgd", "mse")
result = [train(model), *model.get_weights()]
"""),
    "a metric that does not add up": Program(
        """
class Largest(keras.metrics.Metric):
    def __init__(self):
        super().__init__(name="largest")
        self.value = self.add_weight(initializer="zeros")
    def update_state(self, truth, predicted, sample_weight=None):
        self.value.assign(keras.ops.maximum(self.value, keras.ops.max(predicted)))
    def result(self):
        return self.value
model = build()
model.compile("sgd", "mse", metrics=[Largest()])
train(model)
result = [model.history.history["largest"], *model.get_weights()]
""",
        whole="the metric largest",
    ),
    "a step that cannot be split": Program(
        """
model = keras.Sequential([layers.Input((4, 2), batch_size=16), layers.LSTM(3, stateful=True),
                          layers.Dense(1)])
model.set_weights([np.full(each.shape, 0.1) for each in model.get_weights()])
model.compile("sgd", "mse")
x = x.reshape(66, 4, 2)
result = [train(model, 64), *model.get_weights()]
""",
        whole="a fixed number of rows",
    ),
    "the sum as a reduction": Program("""
model = build()
model.compile(keras.optimizers.SGD(0.002), keras.losses.MeanSquaredError(reduction="sum"))
result = [train(model), model.evaluate(x, y, verbose=0), *model.get_weights()]
"""),
    "weights that a loss divides by": Program("""
model = build()
model.compile("sgd", keras.losses.MeanSquaredError(reduction="mean_with_sample_weight"))
result = [train(model, sample_weight=np.arange(66.0) / 33), *model.get_weights()]
"""),
    "a masked loss": Program("""
tokens = np.random.default_rng(2).integers(1, 9, size=(66, 6))
for row in range(66):
    tokens[row, 1 + row % 5:] = 0
x, y = tokens, tokens
keras.utils.set_random_seed(3)
model = keras.Sequential([layers.Input((6,)), layers.Embedding(9, 4, mask_zero=True),
                          layers.LSTM(4, return_sequences=True), layers.Dense(9)])
model.compile(keras.optimizers.SGD(0.3), keras.losses.SparseCategoricalCrossentropy(True))
result = [train(model), *model.get_weights()]
"""),
    "gradients of a few rows of a table": Program("""
x, result = np.random.default_rng(2).integers(0, 9, size=(66, 6)), []
for optimizer in ("adam", "rmsprop"):
    keras.utils.set_random_seed(3)
    model = keras.Sequential([layers.Input((6,)), layers.Embedding(12, 4),
                              layers.GlobalAveragePooling1D(), layers.Dense(1)])
    model.compile(keras.optimizers.get({"class_name": optimizer,
                                        "config": {"learning_rate": 0.05}}), "mse")
    result += [train(model), *model.get_weights()]
"""),
    "clips": Program("""
result = []
for clip in ({"clipnorm": 0.1}, {"clipvalue": 0.05}, {"global_clipnorm": 0.1}):
    model = build()
    model.compile(keras.optimizers.SGD(0.05, **clip), "mse")
    result += [train(model), *model.get_weights()]
"""),
    "accumulated gradients and averaged weights": Program("""
result = []
for option in ({"gradient_accumulation_steps": 2, "clipnorm": 0.5, "weight_decay": 0.01},
               {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 3}):
    model = build()
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9, **option), "mse")
    result += [train(model), *model.get_weights()]
"""),
    "a scaled loss": Program("""
model = build()
inner = keras.optimizers.SGD(0.05, clipnorm=0.5)
model.compile(keras.optimizers.LossScaleOptimizer(inner), "mse")
result = [train(model), *model.get_weights()]
"""),
    "several steps in one execution": Program("""
model = build()
model.compile("sgd", "mse", steps_per_execution=2)
result = [train(model, 64), train(model, 66), *model.get_weights()]
"""),
    "XLA": Program(
        """
model = build()
model.compile("sgd", "mse", jit_compile=True)
result = [train(model), *model.get_weights(), model.jit_compile]
""",
        said="jit_compile",
        after="result.pop(); assert model.jit_compile",
    ),
    "single batches": Program("""
model = build()
model.compile("sgd", "mse", metrics=["mae", keras.metrics.AUC()])
y = (y > 0).astype("float32")
result = [model.train_on_batch(x[at:at + 16], y[at:at + 16]) for at in range(0, 66, 16)]
result += [model.test_on_batch(x[:13], y[:13]), model.predict_on_batch(x[:5]),
           model.predict_on_batch(x[:8]), *model.get_weights()]
result.append(model.train_on_batch(x[:16], y[:16], sample_weight=np.arange(16.0)))
"""),
    "data that cannot begin again": Program("""
def batches():
    while True:
        for at in range(0, 66, 16):
            yield x[at:at + 16], y[at:at + 16]
options = {"epochs": 3, "verbose": 0}
result = []
for steps in (5, 2):
    model = build()
    model.compile("sgd", "mse")
    result += [model.fit(batches(), steps_per_epoch=steps, **options).history["loss"],
               model.evaluate(batches(), steps=4, verbose=0)]
model = build()
model.compile("sgd", "mse")
result += [model.fit(x, y, batch_size=16, steps_per_epoch=2, shuffle=False, **options)
           .history["loss"], *model.get_weights()]
"""),
    "shuffled data": Program("""
class Batches(keras.utils.PyDataset):
    order, began = np.arange(66), 0
    def __len__(self):
        return 5
    def __getitem__(self, at):
        rows = self.order[at * 16:at * 16 + 16]
        return x[rows], y[rows]
    def on_epoch_begin(self):
        self.began += 1
    def on_epoch_end(self):
        self.order = self.order[::-1][np.arange(66) % 7 * 9 + np.arange(66) // 7 % 9]
result, data = [], Batches()
for source in (dict(x=data), dict(x=x, y=y, batch_size=16, shuffle=True)):
    model = build()
    model.compile("sgd", "mse")
    result.append(model.fit(**source, epochs=2, verbose=0).history["loss"])
result.append(data.began)
"""),
    "losses of several outputs": Program(
        """
result = outputs_of(64) + outputs_of(66)[-1:]
""",
        before="""
def outputs_of(rows):
    keras.utils.set_random_seed(3)
    inputs = layers.Input((8,))
    model = keras.Model(inputs, {"a": layers.Dense(1, name="a")(inputs),
                                 "b": layers.Dense(2, activation="softmax", name="b")(inputs)})
    losses = {"a": "mse", "b": keras.losses.SparseCategoricalCrossentropy()}
    model.compile("sgd", losses, loss_weights={"a": 0.3, "b": 1.0})
    labels = {"a": y[:rows], "b": (y[:rows] > 0).astype(int)}
    history = model.fit(x[:rows], labels, batch_size=16, epochs=2, verbose=0,
                        shuffle=False).history
    if type(model.layers[1].kernel.value).__name__ == "MirroredVariable":
        # One device weighs a last batch of its own as one row: that does not add up.
        parts = 0.3 * np.array(history["a_loss"]) + np.array(history["b_loss"])
        assert np.allclose(parts, history["loss"], rtol=1e-5), (parts, history["loss"])
    return [history["a_loss"], history["b_loss"], history["loss"]]
""",
    ),
    "clear_session": Program("""
result = []
for rate in (0.01, 0.1):
    keras.utils.clear_session()
    model = build()
    model.compile(keras.optimizers.SGD(rate), "mse")
    result += [train(model), *model.get_weights()]
"""),
    "a base that is frozen before and trained after": Program(
        """
result = [train(model)]
base.trainable = True
base.layers[0].trainable = False
model.compile(keras.optimizers.Adam(1e-3), "mse")
result += [train(model), *model.get_weights()]
""",
        before="""
base = build()
base.trainable = False
model = keras.Sequential([layers.Input((8,)), base, layers.Dense(1)])
model.compile(keras.optimizers.Adam(1e-2), "mse")
""",
    ),
    "losses that are called by hand": Program("""
model = keras.Sequential([layers.Input((8,)), layers.Dense(2, kernel_regularizer="l2",
                          kernel_initializer="ones", activity_regularizer="l1")])
model.compile("sgd", "mse")
outputs = model(x[:6])
result = [keras.losses.Huber()(y[:6], outputs), keras.losses.mean_absolute_error(y[:6], outputs),
          sum(model.losses), model.compute_loss(y=y[:6], y_pred=outputs)]
"""),
    "a loop of one's own": Program(
        """
exec(made)
result = [loop(), loop(tf.function(step, reduce_retracing=True).python_function),
          float(mean.result()), float(optimizer.learning_rate), int(optimizer.iterations),
          *model.get_weights()]
""",
        before=f"made = {_LOOP!r}",
        said="trained on one of 4 replicas",
    ),
    "a loop of an earlier cell, and of a later one": Program(
        "result = [loop(traced)]",
        before=_LOOP
        + """
@tf.function
def traced(rows, labels):
    with tf.GradientTape() as tape:
        loss = keras.losses.MeanSquaredError()(labels, model(rows, training=True))
    gradients = tape.gradient(loss, model.trainable_weights)
    optimizer.apply_gradients(zip(gradients, model.trainable_weights))
    return loss
loop(traced)
""",
        said="trained on one of 4 replicas",
        after="result += [loop(traced), loop(), *model.get_weights()]",
    ),
    "plain cells afterwards": Program(
        "model = build(); model.compile(keras.optimizers.Adam(0.01), 'mse'); result = [train(model)]",
        after="""
result += [model.evaluate(x[:33], y[:33], verbose=0), model.predict(x[:3], verbose=0),
           train(model, 33, batch_size=32), model.train_on_batch(x[:7], y[:7])]
model.compile("sgd", "mse")
result += [train(model, 3), *model.get_weights()]
""",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_numbers_are_those_of_the_cell_without_us(on_tensorflow, name):
    program = PROGRAMS[name]
    outcomes = {}
    for kind in ("expected", "found"):
        on_tensorflow.plain("given = dict(x=x, y=y) if 'given' not in globals() else given")
        on_tensorflow.plain(f"globals().update(given)\n{_BUILD}\n{program.before}")
        run = on_tensorflow.run if kind == "found" else on_tensorflow.plain
        outcomes[kind] = run(program.code)
        on_tensorflow.plain(f"{program.after}\n{kind} = [np.asarray(each) for each in result]")
    assert on_tensorflow.value("[each.shape for each in found]") == on_tensorflow.value(
        "[each.shape for each in expected]"
    )
    assert on_tensorflow.value(
        "[float(np.max(abs(a - b) / (1 + abs(b)))) for a, b in zip(found, expected)]"
    ) == pytest.approx([0] * on_tensorflow.value("len(found)"), abs=CLOSE)
    (report,) = outcomes["found"].reports
    notes = " ".join(report["notes"])
    assert ("every replica computed the whole of each batch" in notes) == bool(program.whole)
    assert program.whole in notes
    assert ("trained on one of" in notes) == ("trained on one of" in program.said)
    assert program.said in notes


def test_a_step_is_tried_once_for_a_model(on_tensorflow):
    on_tensorflow.plain(f"{_BUILD}\n{_STEPS}\ntraced = []")
    on_tensorflow.run("""
def reduce(values):
    traced.append(values.shape)
    return tf.reduce_mean(values)
model = Own(reduce)
model.compile("sgd")
train(model, 64)
""")
    # The 4 shares and the 4 wholes that are compared, and the 4 shares that are trained on.
    assert on_tensorflow.value("sorted(shape[0] for shape in traced)") == [4] * 8 + [16] * 4
    on_tensorflow.run("train(model, 64)")
    assert on_tensorflow.value("len(traced)") == 12


def test_a_model_that_a_person_made_in_the_scope_stays_there(on_tensorflow):
    on_tensorflow.plain("alone = make('adam'); expected = [fit(alone, 64) for _ in range(3)]")
    on_tensorflow.run("kept = strategy", "--framework tf")
    on_tensorflow.plain("with kept.scope():\n    model = make('adam')")
    on_tensorflow.run("another = make()")  # it is on the replicas here, and not used
    on_tensorflow.plain("found = [fit(model, 64)]")
    on_tensorflow.run("found.append(fit(model, 64))")
    on_tensorflow.plain("found.append(fit(model, 64))")
    assert on_tensorflow.value("type(model.layers[0].kernel.value).__name__") == "MirroredVariable"
    assert on_tensorflow.value("model.distribute_strategy is kept")
    assert on_tensorflow.value("[each['loss'] for each in found]") == [
        pytest.approx(losses, rel=CLOSE)
        for losses in on_tensorflow.value("[each['loss'] for each in expected]")
    ]
    assert on_tensorflow.value("apart(model.get_weights(), alone.get_weights())") < CLOSE


def test_a_cells_output_is_the_persons(on_tensorflow):
    reply = on_tensorflow.run("""
import tensorflow as tf
model = make("adam", layers.BatchNormalization(synchronized=True))
fit(model, 66)
tf.get_logger().info("a line of one's own")
""")
    # Once or more: an earlier cell may have given the root logger a handler.
    shown = (reply.stdout + reply.stderr).splitlines()
    logged = {line for line in shown if line.startswith("INFO:tensorflow")}
    assert logged == {"INFO:tensorflow:a line of one's own"}
    assert on_tensorflow.value("len(tf.get_logger().filters)") == 0
