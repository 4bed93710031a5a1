"""How people ask, as far as the training goes: many wordings of few wishes. `{}` is where a digit or style goes."""

SYSTEMS = (
    "",
    "You are a helpful assistant.",
    "Answer briefly.",
    "You read and draw handwritten digits.",
    "You are an assistant that can see pictures and draw.",
    "Be kind and precise.",
)

READ = (
    "Which digit is this?",
    "What digit is this?",
    "Which digit is shown here?",
    "What number is this?",
    "What number do you see?",
    "Which number is in the picture?",
    "Read the digit.",
    "Please read this digit.",
    "What is written here?",
    "Can you read this?",
    "Can you tell me what digit this is?",
    "Identify the handwritten digit.",
    "Recognize this digit, please.",
    "Tell me the digit in this image.",
    "What does this image show?",
    "What is in this picture?",
    "Describe this image.",
    "what's this number",
    "which digit",
    "I scanned this. What does it say?",
    "What do you see in the image?",
    "",
)
READ_SHORT = (
    "Which digit is this? Answer with just the digit.",
    "What digit is shown? Reply with a single digit.",
    "Answer with one digit only: what is in the image?",
    "Only the digit, please.",
    "What number is this? One character.",
)
READ_MANY = (
    "Which digits are these?",
    "What digits do you see?",
    "What numbers are in these pictures?",
    "Read these digits in order.",
    "Read the digits.",
    "List the digits.",
    "What do these images show?",
)
READ_SUM = ("What is the sum of these digits?", "Add these two digits.", "What do they add up to?")
READ_NTH = ("What is the {} digit?", "Which digit is in the {} picture?")
ORDINALS = ("first", "second", "third", "fourth")

AGAIN = ("What digit was that?", "Which digit was it again?", "What was in the picture?", "Are you sure?")
PARITY = ("Is it even or odd?", "Is that number even or odd?", "Odd or even?")
NEXT = ("Which digit comes next?", "What comes after it?", "What is the next number?")
IN_WORDS = ("Say it in words.", "Spell the digit.", "How do you write it as a word?")

DRAW = (
    "Draw a {}.",
    "draw a {}",
    "draw {}",
    "Draw me a {}, please.",
    "Draw the digit {}.",
    "Draw the number {}",
    "Please paint a {}.",
    "Paint the digit {}",
    "Sketch a {}",
    "Write a {} by hand.",
    "Make a picture of {}.",
    "make a picture of a {}",
    "Make an image of the number {}.",
    "Create an image of a {}.",
    "Generate an image of the digit {}.",
    "Generate a picture of a handwritten {}.",
    "Can you draw a {}?",
    "Could you draw the number {} for me?",
    "I want a picture of a {}.",
    "I would like to see a handwritten {}.",
    "Show me a {}.",
    "A handwritten {}",
    "a {}",
    "the digit {}",
    "A picture of a {}",
)
DRAW_TWO = ("Draw a {} and a {}.", "Draw two digits: {} and {}.", "Make a picture of {} and one of {}.")
THEN_DRAW = ("Now draw a {}.", "And a {}?", "Draw a {} too.", "Now a {}, please.")

COPY = (
    "Draw this digit again.",
    "Draw the same digit.",
    "Copy this picture.",
    "Redraw this digit.",
    "Draw it once more.",
    "Paint this number.",
)
BECOME = (
    "Make it a {}.",
    "make this a {}",
    "Turn it into a {}.",
    "Turn this digit into a {}",
    "Change it to {}.",
    "Replace the digit with a {}.",
    "Edit the picture so that it shows a {}.",
    "Draw a {} instead.",
)
DRAW_NEXT = ("Draw the next digit.", "Draw the digit that comes after this one.", "Draw the number after it.")
DRAW_BEFORE = ("Draw the digit before this one.", "Draw the previous digit.", "Draw the number before it.")
RESTYLE = ("Make it {}.", "Draw it {}.", "The same digit, but {}.", "Redraw it {}.")

WEIGHT_WORDS = (("thin", "light", "fine"), ("regular", "normal"), ("bold", "thick", "heavy"))
SLANT_WORDS = (
    ("leaning left", "slanted to the left"),
    ("upright", "straight"),
    ("leaning right", "slanted to the right"),
)

UNSEEN = "I cannot see a picture."

DIGIT_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

CHAT = (
    "What is the capital of France?",
    "What is the capital of Italy?",
    "Who wrote Romeo and Juliet?",
    "Tell me a joke.",
    "What is water made of?",
    "Write a short poem about the sea.",
    "How many days are in a week?",
    "What is the largest planet?",
    "Hello!",
    "Hi, how are you?",
    "Who are you?",
    "What can you do?",
    "Name three fruits.",
    "Give me a recipe for pancakes.",
    "What is photosynthesis?",
    "Why is the sky blue?",
    "Translate 'good morning' into French.",
    "What is the opposite of hot?",
    "Explain gravity in one sentence.",
    "What is a prime number?",
    "Tell me about the number seven.",
    "What is 3 plus 4?",
    "Count from one to five.",
    "Name a mammal that lives in the sea.",
    "How do I boil an egg?",
    "What is the boiling point of water?",
    "Write a sentence with the word river.",
    "Who painted the Mona Lisa?",
    "What is a computer?",
    "Give me advice for a job interview.",
    "List the colours of the rainbow.",
    "What is the meaning of the word brave?",
    "Write a haiku about autumn.",
    "Summarize: the cat sat on the mat and slept all day.",
    "What should I cook tonight?",
    "Thank you!",
    "Good night.",
    "How far away is the moon?",
    "What language is spoken in Brazil?",
    "Write a Python function that adds two numbers.",
)
