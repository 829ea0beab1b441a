"""Keras under `%%tpu_run` in real kernels, on JAX and on TensorFlow, with 4 devices.

What a model must come to is worked out by the same Keras in a cell without the magic, which
runs on one device.
"""

from __future__ import annotations

import pytest

pytest_plugins = ("tests.support.keras_kernels",)
pytestmark = [pytest.mark.kernel, pytest.mark.timeout(600)]

# Rounding of float32 sums in another order, over a few steps; a wrong batch shows at 1e-3.
CLOSE = 1e-5
OPTIMIZERS = ("sgd", "adam", "rmsprop")


def test_weights_history_and_values_are_one_devices(on_devices):
    # 66 rows in batches of 16: four that divide by 4, and a last one of 2.
    on_devices.plain(f"""
alone = {{}}
for name in {OPTIMIZERS}:
    model = make(name)
    history = fit(model, 66)
    alone[name] = (model.get_weights(), history, model.evaluate(x, y, verbose=0),
                   model.predict(x[:3], verbose=0))
del model
""")
    reply = on_devices.run(f"""
found = {{}}
for name in {OPTIMIZERS}:
    model = make(name)
    history = fit(model, 66)
    found[name] = (model.get_weights(), history, model.evaluate(x, y, verbose=0),
                   model.predict(x[:3], verbose=0))
""")
    for name in OPTIMIZERS:
        for part in (0, 2, 3):
            assert (
                on_devices.value(f"apart(found[{name!r}][{part}], alone[{name!r}][{part}])") < CLOSE
            )
        history = f"apart(*[list(each[{name!r}][1].values()) for each in (found, alone)])"
        assert on_devices.value(history) < CLOSE
    (report,) = reply.reports
    assert (report["num_devices"], report["global_batch"]) == (4, 16)
    assert (report["steps"], report["examples"]) == (30, 396)
    assert report["simulated"]
    assert not report["on_tpu"]
    # Per optimizer: the last batch of each epoch, and of evaluate (66 rows in batches of 32).
    whole = 9 if on_devices.backend == "tensorflow" else 12  # and of predict, on jax
    assert sum(f"{whole} batches of 2" in note for note in report["notes"]) == 1


def test_what_an_earlier_cell_made_goes_on_from_where_it_was(on_devices):
    on_devices.plain("""
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        inputs, twice = layers.Input((8,)), layers.Dense(8, name="twice")
        inner = keras.Sequential([layers.Input((8,)), layers.Dense(4, trainable=False)])
        self.body = keras.Model(inputs, inner(twice(twice(inputs))))
        self.head = layers.Dense(1)

    def call(self, inputs):
        return self.head(self.body(inputs))

def started():
    keras.utils.set_random_seed(2)
    net = Net()
    loss = lambda t, p: keras.ops.square(t - p)
    net.compile(keras.optimizers.Adam(0.01, weight_decay=1e-3), loss)
    fit(net, 64)
    return net

reference = started()
fit(reference, 64)
expected = reference.get_weights()
del reference
held = {"nets": [started()]}
net = held["nets"][0]
parts = [net, net.optimizer, *net.variables, *net.optimizer.variables]
""")
    reply = on_devices.run('fit(held["nets"][0], 64)')
    (report,) = reply.reports
    assert on_devices.value("apart(net.get_weights(), expected)") < CLOSE
    now = "[net, net.optimizer, *net.variables, *net.optimizer.variables]"
    assert all(on_devices.value(f"[a is b for a, b in zip(parts, {now})]"))
    assert len(report["moved"]) == 1
    assert on_devices.value("[each.trainable for each in net.body.layers[-1].layers]") == [False]
    assert on_devices.value("int(net.optimizer.iterations.numpy())") == 16
    again = on_devices.run("fit(net, 64)")
    assert again.reports[0]["moved"] == []
    # A cell without the magic goes on with it too.
    on_devices.plain("fit(net, 64)")


def test_batch_norm_is_exact_on_jax(on_jax):
    on_jax.plain("alone = make('sgd', layers.BatchNormalization()); fit(alone, 50)")
    reply = on_jax.run("model = make('sgd', layers.BatchNormalization()); fit(model, 50)")
    assert on_jax.value("apart(model.get_weights(), alone.get_weights())") < CLOSE
    assert not any("normalization" in note for note in reply.reports[0]["notes"])


def test_what_is_per_replica_on_tensorflow_is_said_once(on_tensorflow):
    reply = on_tensorflow.run("""
model = make("sgd", layers.BatchNormalization(), layers.Dropout(0.1))
fit(model, 32, epochs=1)
""")
    said = " ".join(reply.reports[0]["notes"])
    assert "batch normalization (1 layer)" in said
    assert "synchronized=True" in said
    assert "random numbers (1 layer: Dropout) are drawn on each replica" in said
    again = on_tensorflow.run("fit(model, 32, epochs=1)")
    assert "normalization" not in " ".join(again.reports[0]["notes"])


def test_every_kind_of_layer_that_draws_is_named_on_tensorflow(on_tensorflow):
    reply = on_tensorflow.run("""
rows = layers.Input((8, 1))
hidden = layers.GRU(2, dropout=0.2)(layers.LSTM(2, return_sequences=True)(rows))
hidden = layers.GaussianNoise(0.1)(layers.Dropout(0)(hidden))
model = keras.Model(rows, layers.Dense(1)(hidden))
model.compile("sgd", "mse")
model.fit(x[:32, :, None], y[:32], verbose=0)
""")
    assert "random numbers (2 layers: GRUCell, GaussianNoise)" in reply.reports[0]["notes"][0]


def test_synchronized_batch_norm_is_exact_on_tensorflow_and_not_warned_of(on_tensorflow):
    on_tensorflow.plain("""
norm = lambda: layers.BatchNormalization(synchronized=True)
alone = make("sgd", norm())
fit(alone, 34)
""")
    reply = on_tensorflow.run("model = make('sgd', norm()); fit(model, 34)")
    assert on_tensorflow.value("apart(model.get_weights(), alone.get_weights())") < CLOSE
    assert "normalization" not in " ".join(reply.reports[0]["notes"])


def test_a_metric_keeps_what_it_has_counted(on_devices):
    on_devices.plain("""
total = keras.metrics.Sum()
total.update_state([1.0, 3.0])
""")
    on_devices.run("inside = float(total.result())")
    assert on_devices.value("inside, float(total.result())") == (4.0, 4.0)


def test_files_load_without_a_strategy(on_devices):
    on_devices.plain("""
import pathlib, tempfile
folder = pathlib.Path(tempfile.mkdtemp())
""")
    on_devices.run("""
model = make("adam")
fit(model, 32)
model.save(folder / "model.keras")
model.save_weights(folder / "model.weights.h5")
model.save(folder / "model.h5")
model.export(folder / "exported", verbose=False)
predicted = model.predict(x[:5], verbose=0)
np.save(folder / "x.npy", x[:5])
np.save(folder / "predicted.npy", predicted)
""")
    script = f"""
import keras, numpy as np, pathlib
folder = pathlib.Path({on_devices.value("str(folder)")!r})
x, predicted = np.load(folder / "x.npy"), np.load(folder / "predicted.npy")
model = keras.models.load_model(folder / "model.keras")
old = keras.models.load_model(folder / "model.h5", compile=False)
weights = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(6, activation="tanh"),
                            keras.layers.Dense(1)])
weights.load_weights(folder / "model.weights.h5")
served = keras.layers.TFSMLayer(folder / "exported", call_endpoint="serve") if (
    keras.backend.backend() == "tensorflow") else None
found = [each.predict(x, verbose=0) for each in (model, old, weights)]
found += [served(x)] if served else []
print(max(float(np.abs(each - predicted).max()) for each in found), int(model.optimizer.iterations))
"""
    on_devices.plain(f"""
import os, subprocess, sys
done = subprocess.run([sys.executable, "-c", {script!r}], capture_output=True, text=True,
                      env={{**os.environ, "KERAS_BACKEND": {on_devices.backend!r}}})
""")
    assert on_devices.value("done.returncode") == 0, on_devices.value("done.stderr[-2000:]")
    apart, iterations = on_devices.value("done.stdout").split()[-2:]
    assert float(apart) < CLOSE
    assert int(iterations) == 4


def test_an_interrupt_in_the_middle_of_fit_leaves_the_model_usable(on_devices):
    on_devices.plain("""
import os, signal
class Interrupt(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 2:
            os.kill(os.getpid(), signal.SIGINT)
alone = make()
alone.fit(x[:32], y[:32], batch_size=16, shuffle=False, verbose=0)
""")
    reply = on_devices.cell("""
model = make()
model.fit(x[:64], y[:64], batch_size=16, shuffle=False, verbose=0, callbacks=[Interrupt()])
""")
    assert (reply.status, reply.ename) == ("error", "KeyboardInterrupt")
    # Whole steps only: two, or a third that had begun.
    assert on_devices.value("int(model.optimizer.iterations.numpy())") in (2, 3)
    if on_devices.value("int(model.optimizer.iterations.numpy())") == 2:
        assert on_devices.value("apart(model.get_weights(), alone.get_weights())") < CLOSE
    on_devices.run("fit(model, 32)")
    assert on_devices.value("bool(np.isfinite(model.predict(x[:8], verbose=0)).all())")


def test_an_interrupt_inside_a_step_waits_for_its_end(on_jax):
    reply = on_jax.cell("""
import os, signal
handler = signal.getsignal(signal.SIGINT)
model = make()
good = make()
model.train_on_batch(x[:4], y[:4])
step = model.train_function
own = step.function
def interrupted(state, batches):
    made = own(state, batches)
    os.kill(os.getpid(), signal.SIGINT)
    return made
step.function = interrupted
model.train_on_batch(x[4:8], y[4:8])
""")
    assert reply.ename == "KeyboardInterrupt"
    assert on_jax.value("signal.getsignal(signal.SIGINT) is handler")
    on_jax.plain("""
good.train_on_batch(x[:4], y[:4])
good.train_on_batch(x[4:8], y[4:8])
""")
    assert on_jax.value("apart(model.get_weights(), good.get_weights())") < CLOSE


def test_an_error_of_the_persons_leaves_the_model_usable(on_devices):
    on_devices.plain("model = make('adam'); fit(model, 32); before = model.get_weights()")
    reply = on_devices.cell("model.fit(x[:30], np.zeros((30, 5, 5)), batch_size=15, verbose=0)")
    assert reply.status == "error"
    assert reply.errors_shown == 1
    assert "tpu_magic/frameworks" not in reply.traceback
    assert on_devices.value("apart(model.get_weights(), before)") == 0
    on_devices.run("fit(model, 33)")
    assert on_devices.value("bool(np.isfinite(model.get_weights()[0]).all())")


def test_every_source_of_batches_gives_one_devices_history(on_devices):
    # A generator, tf.data, validation data, weights, several steps an execution.
    body = """
import tensorflow as tf
def batches():
    while True:
        yield x[:10], y[:10]
model = make()
histories = [
    model.fit(batches(), steps_per_epoch=2, verbose=0).history,
    model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(16), verbose=0).history,
    fit(model, 66, sample_weight=np.linspace(0, 1, 66), validation_data=(x[:7], y[:7])),
]
model.compile("sgd", "mse", steps_per_execution=2)
histories.append(fit(model, 66))
values = [value for each in histories for values in each.values() for value in values]
values += [model.train_on_batch(x[:6], y[:6]), model.test_on_batch(x[:6], y[:6])]
values = np.array([float(np.ravel(each)[0]) for each in values])
"""
    on_devices.plain(f"{body}\nalone = values")
    on_devices.run(body)
    assert on_devices.value("apart([values], [alone])") < CLOSE


_LABELS = {"jax": "XLA CPU × 4 · not a TPU", "tensorflow": "CPU (TensorFlow) × 4 · not a TPU"}


def test_class_weights_weigh(on_devices):
    make_one = """
def sorts(weights):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([layers.Input((8,)), layers.Dense(3, activation="softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    kinds = (np.arange(66) % 3).astype("int32")
    model.fit(x, kinds, batch_size=16, epochs=2, shuffle=False, verbose=0, class_weight=weights)
    return model.get_weights()
"""
    on_devices.plain(f"{make_one}\nalone, even = sorts({{0: 1.0, 1: 5.0, 2: 0.1}}), sorts(None)")
    on_devices.run(f"{make_one}\nweighed = sorts({{0: 1.0, 1: 5.0, 2: 0.1}})")
    assert on_devices.value("apart(weighed, alone)") < CLOSE
    assert on_devices.value("apart(weighed, even)") > 1000 * CLOSE


def test_predict_can_be_timed(on_devices):
    on_devices.run("model = make(); fit(model, 64);")
    timed = "timed = %tpu_timeit -o -q -r 5 -n 2 --mode latency model.predict(x[:64], verbose=0)"
    on_devices.plain(timed)
    runs, loops, device = on_devices.value("(timed.repeat, timed.loops, timed.device_label())")
    assert (runs, loops) == (5, 2)
    assert device == _LABELS[on_devices.backend]


def test_a_tensorflow_function_is_timed_where_it_runs(on_tensorflow):
    on_tensorflow.plain(
        "import tensorflow as tf\n"
        "a = tf.random.normal((64, 64), seed=1)\n"
        "calls = []\n"
        "@tf.function\n"
        "def product(a):\n    calls.append(1)\n    return a @ a\n"
        "timed = %tpu_timeit -o -q -r 5 -n 20 product(a)\n"
    )
    traced, runs, loops, device = on_tensorflow.value(
        "(len(calls), timed.repeat, timed.loops, timed.device_label())"
    )
    assert (traced, runs, loops) == (1, 5, 20)
    assert device == _LABELS["tensorflow"]


@pytest.mark.parametrize(("rows", "batch"), [(64, 16), (56, 16), (66, 33)])
def test_batches_of_arrays_that_divide_are_left_to_keras(on_tensorflow, rows, batch):
    # 56 rows leave 8, which 4 divides; but they are dealt out as 4, 4, 0, 0.
    on_tensorflow.plain(f"alone = make(); fit(alone, {rows}, {batch})")
    reply = on_tensorflow.run(f"model = make(); fit(model, {rows}, {batch}, epochs=2);")
    assert on_tensorflow.value("apart(model.get_weights(), alone.get_weights())") < CLOSE
    (report,) = reply.reports
    assert (report["steps"], report["examples"]) == (2 * -(-rows // batch), 2 * rows)
    # Who fetches a batch inside of the program cannot be timed.
    assert (report["input_wait_s"] is None) == (batch == 16)


def test_an_iterator_that_is_left_early_has_no_thread_to_wait_for(on_tensorflow):
    # TensorFlow's tuner sleeps up to a minute, and an iterator that is dropped waits for it.
    on_tensorflow.run("""
import tensorflow as tf
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from tensorflow.python.data.ops import multi_device_iterator_ops as buffers
seen, told = [], []
made = buffers._create_device_dataset
def look(*args):
    dataset = made(*args)
    told.append(dataset.options().autotune.enabled)
    return dataset
buffers._create_device_dataset = look
class Look(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        adapter = ArrayDataAdapter(x, y, batch_size=16)
        seen.append(adapter.get_tf_dataset().options().autotune.enabled)
fit(make(), 64, epochs=1, callbacks=[Look()])
buffers._create_device_dataset = made
theirs = tf.data.Dataset.from_tensor_slices(x).batch(16).options().autotune.enabled
""")
    assert on_tensorflow.value("(seen, set(told), theirs)") == ([False] * 4, {False}, None)
    own = "ArrayDataAdapter(x, y, batch_size=16).get_tf_dataset().options().autotune.enabled"
    assert on_tensorflow.value(own) is None


def test_the_wait_for_a_pipeline_is_measured(on_tensorflow):
    reply = on_tensorflow.run("""
import tensorflow as tf, time
def slow(a, b):
    time.sleep(0.05)
    return a, b
data = tf.data.Dataset.from_tensor_slices((x[:64], y[:64])).batch(16, drop_remainder=True)
model = make()
model.fit(data.map(lambda a, b: tf.numpy_function(slow, (a, b), (tf.float32, tf.float32))).map(
    lambda a, b: (tf.ensure_shape(a, (16, 8)), tf.ensure_shape(b, (16, 1)))), verbose=0);
""")
    (report,) = reply.reports
    assert (report["steps"], report["examples"]) == (4, 64)
    assert report["input_wait_s"] > 0.04  # the sleep of the first batch at least


def test_steps_per_epoch_that_leaves_most_rows_out_is_said(on_jax):
    reply = on_jax.run("make().fit(x, y, batch_size=16, steps_per_epoch=1, verbose=0)")
    assert "steps_per_epoch=1 trains on 16 of 66 rows" in " ".join(reply.reports[0]["notes"])
    reply = on_jax.run("make().fit(x, y, batch_size=16, steps_per_epoch=3, verbose=0)")
    assert "steps_per_epoch" not in " ".join(reply.reports[0]["notes"])


def test_the_cell_shows_what_a_plain_one_does(on_jax):
    shown = on_jax.run("model = make(); model.summary()\nmodel.fit(x[:32], y[:32], epochs=2)")
    assert "Epoch 2/2" in shown.stdout
    assert "Total params" in shown.stdout + str(shown.displays)
    assert "History" in shown.value


def test_a_cell_in_which_nothing_ran_says_so(on_devices):
    on_devices.plain("model = make(); model.predict(x[:8], verbose=0); keras.ops.sum(x)")

    def reached(code):
        (report,) = on_devices.run(code).reports
        return report["reached_device"]

    for code in ("a = 3", "import keras", "model.summary(print_fn=lambda *a, **k: None)"):
        assert not reached(code), code
    # Compiled before, so that only what they leave can tell.
    for code in (
        "b = keras.ops.sum(x)",
        "float(keras.ops.sum(x))",
        "p = model.predict(x[:8], verbose=0)",
    ):
        assert reached(code), code


def test_tracing_is_measured(on_devices):
    (report,) = on_devices.run("model = make(); fit(model, 32);").reports
    assert 0 < report["trace_s"] < report["wall_s"]
    (report,) = on_devices.run("1 + 1").reports
    assert report["trace_s"] == 0


def test_nothing_stays_changed(on_devices):
    on_devices.plain("""
import os
def state():
    return ([getattr(keras.Model, name) for name in dir(keras.Model) if not name.startswith("__")],
            dict(os.environ), keras.config.dtype_policy().name, keras.distribution.distribution())
before = state()
""")
    on_devices.run("inside = state(); fit(make(), 16)", "--framework keras --precision bf16")
    assert on_devices.value("state() == before")
    assert on_devices.value("inside[2]") == "mixed_bfloat16"
    assert on_devices.value("inside[0] != before[0]")
    reply = on_devices.cell("1 / 0")
    assert reply.ename == "ZeroDivisionError"
    assert on_devices.value("state() == before")


def test_a_seed_makes_two_cells_the_same(on_jax):
    body = (
        "model = keras.Sequential([layers.Input((8,)), layers.Dense(2)]); w = model.get_weights()"
    )
    on_jax.run(body, "--framework keras --seed 3")
    on_jax.plain("first = w")
    on_jax.run(body, "--framework keras --seed 3")
    assert on_jax.value("apart(w, first)") == 0


def test_keep_is_refused_in_words(on_jax):
    reply = on_jax.cell("1", "--framework keras --keep x")
    assert reply.ename == "UsageError"
    assert "--keep is for torch" in reply.evalue


def test_a_backend_that_is_asked_for_too_late_is_said(on_jax):
    reply = on_jax.run('import os; os.environ["KERAS_BACKEND"] = "torch"')
    on_jax.plain('os.environ["KERAS_BACKEND"] = "jax"')
    assert "restart the kernel and set it first" in " ".join(reply.reports[0]["notes"])
    assert "KERAS_BACKEND asks for it" in reply.reports[0]["device_note"]


def test_the_timer_knows_keras_and_jax(on_jax):
    on_jax.plain("""
import jax, jax.numpy as jnp
f = jax.jit(lambda a: a @ a)
a = jnp.ones((64, 64))
model = make()
model.predict(x[:8], verbose=0)
timed = get_ipython().run_line_magic("tpu_timeit", "-q -n 2 -r 3 -o f(a)")
model_timed = get_ipython().run_line_magic("tpu_timeit", "-q -n 2 -r 3 -o model(x[:8])")
""")
    assert on_jax.value("timed.device_kind") == "XLA CPU"
    assert on_jax.value("timed.best > 0 and model_timed.best > 0")
