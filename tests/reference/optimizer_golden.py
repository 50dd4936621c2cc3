"""Prints the golden values of tests/ps_server/store/optimizer_golden_test.cc.

usage: python3 tests/reference/optimizer_golden.py

Computes one scalar weight in double precision, with the formulas that TensorFlow documents for
tf.train.MomentumOptimizer, RMSPropOptimizer, AdamOptimizer and ExponentialMovingAverage.
"""

import math

GRADIENTS = [0.5, -0.25, 0.125, 2.0, -1.0]
WEIGHT = 1.5
EMA_DECAY = 0.75


def momentum(rate, factor):
    w, a = WEIGHT, 0.0
    for g in GRADIENTS:
        a = factor * a + g
        w -= rate * a
        yield w, a, None


def rms_prop(rate, decay, factor, epsilon):
    w, s, m = WEIGHT, 1.0, 0.0
    for g in GRADIENTS:
        s = decay * s + (1 - decay) * g * g
        m = factor * m + rate * g / math.sqrt(s + epsilon)
        w -= m
        yield w, s, m


def adam(rate, epsilon, beta1=0.9, beta2=0.999):
    w, m, v = WEIGHT, 0.0, 0.0
    for t, g in enumerate(GRADIENTS, start=1):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        rate_t = rate * math.sqrt(1 - beta2**t) / (1 - beta1**t)
        w -= rate_t * m / (math.sqrt(v) + epsilon)
        yield w, m, v


def show(name, states):
    ema = WEIGHT
    print(f"// {name}: weight, slot 0, slot 1, EMA after each step")
    for w, first, second in states:
        ema = EMA_DECAY * ema + (1 - EMA_DECAY) * w
        print(f"{{{w:.12g}, {first:.12g}, {second or 0:.12g}, {ema:.12g}}},")


show("momentum 0.9, rate 0.1", momentum(0.1, 0.9))
show("RMSProp decay 0.9, momentum 0.8, epsilon 0.01, rate 0.1", rms_prop(0.1, 0.9, 0.8, 0.01))
show("Adam rate 0.01, epsilon 0.1", adam(0.01, 0.1))
